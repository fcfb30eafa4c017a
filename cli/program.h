// Runs another program and waits for it.
//
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunProgram({"python", "train.py"}, "train.log", {}));
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

// Its exit code, or minus the signal that ended it. Standard output and error go to the file
// `output`, there is no input. `environment` is laid over ours; an empty value takes a variable
// away. Errors: kNotFound when there is no such program, kIo.
Result<int> RunProgram(const std::vector<std::string>& words, const std::string& output,
                       const std::vector<std::pair<std::string, std::string>>& environment);

// The last lines of a text file, at most `count`; "" when it cannot be read.
std::string LastLines(const std::string& path, size_t count);

// The file of that name beside the running program, "" when there is none.
std::string BesideThisProgram(const std::string& name);

}  // namespace msprobe::cli
