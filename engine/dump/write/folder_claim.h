// Makes sure that two processes never write into one folder: the first process that claims "rank"
// or "rank0" below a dump_path keeps it until it ends, or until it has claimed 128 others.
//
//   std::string name = ClaimFolder(dump_path, "step0", "rank");   // "rank", or "proc4711"
#pragma once

#include <string>

namespace msprobe::dump {

// Returns `name` when this process may use it below `dump_path`, in this step and all later ones.
// Otherwise "proc<pid>", and a log line says why. On a file system without locks: `name`.
std::string ClaimFolder(const std::string& dump_path, const std::string& step,
                        const std::string& name);

// In a forked child: gives up the claims, which stay with the parent.
void ForgetClaims();

}  // namespace msprobe::dump
