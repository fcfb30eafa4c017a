// Two processes never write into one folder: the first one that asks for "rank" or "rank0" below a
// dump_path has it until it ends.
//
//   std::string name = ClaimFolder(dump_path, "step0", "rank");   // "rank", or "proc4711"
#pragma once

#include <string>

namespace msprobe::dump {

// `name` when this process may use it below `dump_path`, in this step and all later ones; else
// "proc<pid>", and one line in the log says why. Where the file system knows no locks, `name`.
std::string ClaimFolder(const std::string& dump_path, const std::string& step,
                        const std::string& name);

// In a forked child: the claims stay with the parent.
void ForgetClaims();

}  // namespace msprobe::dump
