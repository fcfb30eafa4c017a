// Runs another program and waits for it.
//
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunProgram({"python", "train.py"}, "train.log", {}));
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

// The result is the program's exit code, or minus the number of the signal that ended it. Its
// standard output and error go to the file `output`; its input is empty. `environment` is added to
// the present environment; an empty value removes a variable. Errors: kNotFound when there is no
// such program, kIo.
Result<int> RunProgram(const std::vector<std::string>& words, const std::string& output,
                       const std::vector<std::pair<std::string, std::string>>& environment);

// Runs a line of a shell (/bin/sh). Its output and errors go where this program's go; its input is
// the terminal, or empty where this program reads its own commands from a pipe. The result is as
// that of RunProgram.
Result<int> RunShellLine(const std::string& line);

// The last `count` lines of a text file; "" when the file cannot be read.
std::string LastLines(const std::string& path, size_t count);
// How many of them a message shows of a program that failed.
inline constexpr size_t kOutputLines = 20;

// The path of a file in the folder of the running program; "" when there is no such file.
std::string BesideThisProgram(const std::string& name);

}  // namespace msprobe::cli
