#include "engine/formats/name_lists.h"

#include "engine/formats/yaml_file.h"

namespace msprobe {
namespace {

Status Wrong(const std::string& path, const YAML::Mark& mark, const char* expected) {
  return WrongYaml(path, mark, expected)
      .Hint("one category a line, then its names, each after '  - '");
}

}  // namespace

Result<NameLists> ReadNameLists(const std::string& path) {
  return ReadYaml<NameLists>(path, [&](const YAML::Node& root) -> Result<NameLists> {
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
  });
}

}  // namespace msprobe
