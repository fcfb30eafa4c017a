#include "engine/dump/read/tag_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/log.h"

namespace msprobe::dump {
namespace {

// "ptdbg_dump_v" of "ptdbg_dump_v2.0".
std::string_view TagOf(std::string_view name) { return name.substr(0, name.rfind("_v") + 2); }

}  // namespace

bool IsTagFolder(std::string_view name) {
  const size_t v = name.rfind("_v");
  return v != name.npos && v + 2 < name.size() &&
         name.find_first_not_of("0123456789.", v + 2) == name.npos;
}

std::string ExistingTag(const std::string& path) {
  if (Exists(path)) return path;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string name = path.substr(start, end - start);
    if (!IsTagFolder(name) || Exists(path.substr(0, end))) {
      start = end + 1;
      continue;
    }
    const std::string parent = start == 0 ? "." : path.substr(0, start);
    const Result<std::vector<std::string>> names = ListDirectory(parent);
    if (!names.ok()) return path;
    std::vector<std::string> found;
    for (const std::string& other : *names) {
      if (IsTagFolder(other) && TagOf(other) == TagOf(name)) found.push_back(other);
    }
    if (found.size() != 1) return path;
    std::string existing = path.substr(0, start) + found[0] + path.substr(end);
    if (!Exists(existing)) return path;
    Log(LogLevel::kWarning, "there is no {}; {} is used instead"_t(path, existing));
    return existing;
  }
  return path;
}

}  // namespace msprobe::dump
