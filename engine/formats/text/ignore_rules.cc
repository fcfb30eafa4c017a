#include "engine/formats/text/ignore_rules.h"

#include <algorithm>
#include <charconv>

#include "engine/formats/text/yaml_file.h"

namespace msprobe::formats {
namespace {

using Rules = std::vector<IgnoreRule>;

class RuleReader {
 public:
  explicit RuleReader(const std::string& path) : path_(path) {}

  Result<Rules> Read(const YAML::Node& root) {
    if (root.IsNull()) return std::move(rules_);
    if (!root.IsMap()) return Wrong(root, "a mapping of prefixes such as Distributed"_t);
    for (const auto& prefix : root) {
      if (prefix.second.IsNull()) continue;
      if (!prefix.second.IsMap()) return Wrong(prefix.second, "a mapping of APIs"_t);
      for (const auto& api : prefix.second) {
        IgnoreRule rule{prefix.first.Scalar(), api.first.Scalar(), LineOf(api.first), {}, {}};
        MSPROBE_RETURN_IF_ERROR(Sides(api.second, &rule));
        rules_.push_back(std::move(rule));
      }
    }
    return std::move(rules_);
  }

 private:
  static uint64_t LineOf(const YAML::Node& node) {
    return static_cast<uint64_t>(node.Mark().line) + 1;
  }
  Status Wrong(const YAML::Node& node, Message expected) const {
    return WrongYaml(path_, node.Mark(), std::move(expected))
        .Hint(std::string("Distributed:\\n  irecv:\\n    input: [0, tensor]\\n    output: all"));
  }

  Status Sides(const YAML::Node& sides, IgnoreRule* rule) const {
    if (!sides.IsMap()) return Wrong(sides, "\"input\" or \"output\""_t);
    for (const auto& side : sides) {
      const std::string& name = side.first.Scalar();
      if (name != "input" && name != "output")
        return Wrong(side.first, "\"input\" or \"output\""_t).Found(name);
      IgnoredValues* values = name == "input" ? &rule->input : &rule->output;
      MSPROBE_RETURN_IF_ERROR(Values(side.second, /*names=*/name == "input", values));
    }
    return Status::Ok();
  }

  Status Values(const YAML::Node& list, bool names, IgnoredValues* values) const {
    if (list.IsScalar() && list.Scalar() == "all") {
      values->all = true;
      return Status::Ok();
    }
    const Message expected =
        names ? "all, or a list of positions and keyword names"_t : "all, or a list of positions"_t;
    if (!list.IsSequence()) return Wrong(list, expected);
    for (const YAML::Node& item : list) {
      if (!item.IsScalar() || item.Scalar().empty()) return Wrong(item, expected);
      const std::string& text = item.Scalar();
      int64_t position = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
      const bool is_number = error == std::errc() && end == text.data() + text.size();
      if ((is_number && position < 0) || (!is_number && !names)) return Wrong(item, expected);
      if (is_number)
        values->positions.push_back(position);
      else
        values->names.push_back(text);
    }
    return Status::Ok();
  }

  const std::string& path_;
  Rules rules_;
};

}  // namespace

bool IgnoredValues::Has(int64_t position) const {
  return all || std::find(positions.begin(), positions.end(), position) != positions.end();
}

bool IgnoredValues::Has(std::string_view name) const {
  return all || std::find(names.begin(), names.end(), name) != names.end();
}

Result<Rules> ReadIgnoreRules(const std::string& path) {
  return ReadYaml<Rules>(path, [&](const YAML::Node& root) { return RuleReader(path).Read(root); });
}

}  // namespace msprobe::formats
