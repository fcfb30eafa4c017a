// The provenance of a run, for the header of its dump: versions, device, seed and source revision.
// It holds no host name, user name or path.
//
//   std::string revision = GitRevision("/home/me/train");       // "" outside a repository
//   for (const auto& [key, text] : dump.provenance) ...          // table.h
#pragma once

#include <string>

namespace msprobe::dump {

// The commit that is checked out in the repository around `directory`: 40 (or 64) hex digits, read
// from the repository's files (git is not run). "" when there is no repository or it cannot be
// read.
std::string GitRevision(const std::string& directory);

}  // namespace msprobe::dump
