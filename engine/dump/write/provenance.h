// Where a run came from: what its header says of versions, device, seed and source revision. No
// host, user or path is part of it.
//
//   std::string revision = GitRevision("/home/me/train");       // "" outside a repository
//   for (const auto& [key, text] : dump.provenance) ...          // table.h
#pragma once

#include <string>

namespace msprobe::dump {

// The commit that is checked out in the repository around `directory`: 40 (or 64) hex digits, read
// from its files (no git is run); "" when there is none or it cannot be told.
std::string GitRevision(const std::string& directory);

}  // namespace msprobe::dump
