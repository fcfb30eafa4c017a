// The Python beside this program, for the few steps that need one of its libraries.
//
//   const std::vector<std::string> words = {"-m", "msprobe.core.grad_probe.pictures", "out"};
//   MSPROBE_ASSIGN_OR_RETURN(const std::string line, LineOfPython("--png", words));
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

// The interpreter of the environment in which this program is installed; else "python3".
std::string PythonProgram();
// Where this program runs inside of Python: that interpreter.
void SetPythonProgram(std::string path);

// The first line that Python prints with these arguments. `flag`: the flag that asked for it.
// Errors: kUnsupported when it ends before, and when the line is "what is wrong, a tab, what to
// type".
Result<std::string> LineOfPython(const std::string& flag, std::vector<std::string> arguments);

}  // namespace msprobe::cli
