#include "engine/formats/text/name_lists.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/formats/text/yaml_file.h"

namespace msprobe::formats {
namespace {

Status Wrong(const std::string& path, const YAML::Mark& mark, Message expected) {
  return WrongYaml(path, mark, std::move(expected))
      .Hint("one category a line, then its names, each after '  - '"_t);
}

std::vector<std::string>& Names(NameLists* lists, const std::string& category) {
  for (auto& [known, names] : *lists) {
    if (Lower(known) == Lower(category)) return names;
  }
  return lists->emplace_back(category, std::vector<std::string>()).second;
}

}  // namespace

NameLists MergeNameLists(NameLists shipped, const NameLists& own) {
  for (const auto& [category, names] : own) {
    std::vector<std::string>& known = Names(&shipped, category);
    for (const std::string& name : names) {
      const auto listed =
          std::find(known.begin(), known.end(), name.starts_with('-') ? name.substr(1) : name);
      if (listed == known.end()) {
        known.push_back(name);
      } else if (name.starts_with('-')) {
        known.erase(listed);
      }
    }
  }
  return shipped;
}

Result<NameLists> ReadNameLists(const std::string& path) {
  return ReadYaml<NameLists>(path, [&](const YAML::Node& root) -> Result<NameLists> {
    NameLists lists;
    if (root.IsNull()) return lists;
    if (!root.IsMap()) return Wrong(path, root.Mark(), "a mapping of categories"_t);
    for (const auto& category : root) {
      if (!category.first.IsScalar())
        return Wrong(path, category.first.Mark(), "the name of a category"_t);
      std::vector<std::string> names;
      if (!category.second.IsNull() && !category.second.IsSequence())
        return Wrong(path, category.second.Mark(), "a list of names"_t);
      for (const YAML::Node& name : category.second) {
        if (!name.IsScalar()) return Wrong(path, name.Mark(), "a name"_t);
        names.push_back(name.Scalar());
      }
      lists.emplace_back(category.first.Scalar(), std::move(names));
    }
    return lists;
  });
}

}  // namespace msprobe::formats
