#include "engine/formats/name_lists.h"

#include <yaml-cpp/yaml.h>

#include "engine/base/file.h"

namespace msprobe {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;

Status Wrong(const std::string& path, const YAML::Mark& mark, const char* expected) {
  return InvalidConfig(path, static_cast<uint64_t>(mark.line) + 1)
      .Expected(expected)
      .Hint("one category a line, then its names, each after '  - '");
}

}  // namespace

Result<NameLists> ReadNameLists(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxFileBytes)
    return InvalidConfig(path).Expected("a file of at most 16 MiB");
  try {
    const YAML::Node root = YAML::Load(std::string(file.bytes()));
    NameLists lists;
    if (root.IsNull()) return lists;
    if (!root.IsMap()) return Wrong(path, root.Mark(), "a mapping of categories");
    for (const auto& category : root) {
      if (!category.first.IsScalar())
        return Wrong(path, category.first.Mark(), "the name of a category");
      std::vector<std::string> names;
      if (!category.second.IsNull() && !category.second.IsSequence())
        return Wrong(path, category.second.Mark(), "a list of names");
      for (const YAML::Node& name : category.second) {
        if (!name.IsScalar()) return Wrong(path, name.Mark(), "a name");
        names.push_back(name.Scalar());
      }
      lists.emplace_back(category.first.Scalar(), std::move(names));
    }
    return lists;
  } catch (const YAML::Exception& error) {
    return Wrong(path, error.mark, "YAML").Found(error.msg);
  }
}

}  // namespace msprobe
