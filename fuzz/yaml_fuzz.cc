// Reads any bytes as each YAML file that users may edit.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "engine/dump/config/api_rules.h"
#include "engine/formats/text/ignore_rules.h"
#include "engine/formats/text/name_lists.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace {

void CheckYamlRefusal(const msprobe::Status& status, const std::string& path) {
  if (status.code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
  if (status.message().find(path) == std::string::npos) std::abort();
}

}  // namespace

FUZZ_TARGET(yaml) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  const auto lists = msprobe::formats::ReadNameLists(path);
  if (!lists.ok()) CheckYamlRefusal(lists.status(), path);
  const auto of_apis = msprobe::dump::ApiRules::Read(path, path);
  if (!of_apis.ok()) CheckYamlRefusal(of_apis.status(), path);
  const auto rules = msprobe::formats::ReadIgnoreRules(path);
  if (!rules.ok()) {
    CheckYamlRefusal(rules.status(), path);
    return 0;
  }
  for (const msprobe::formats::IgnoreRule& rule : *rules)
    if (rule.line == 0) std::abort();
  return 0;
}
