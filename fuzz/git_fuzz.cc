// Reads any bytes as the files of a git repository: the result is a revision, or "".
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/dump/write/provenance.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

// 0x1e separates HEAD, packed-refs and the branch "main". All bytes together are also the file .git
// of a worktree.
FUZZ_TARGET(git) {
  static msprobe::MemoryFolder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  folder.Set("worktree/.git", rest);
  for (const char* name :
       {"clone/.git/HEAD", "clone/.git/packed-refs", "clone/.git/refs/heads/main"}) {
    const size_t end = rest.find('\x1e');
    folder.Set(name, rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  for (const char* place : {"/worktree", "/clone"}) {
    const std::string revision = msprobe::dump::GitRevision(folder.path() + place);
    if (!revision.empty() && revision.size() != 40 && revision.size() != 64) std::abort();
  }
  return 0;
}
