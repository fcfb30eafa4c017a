#include "engine/dump/config/api_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/dump/config/config_values.h"
#include "engine/formats/text/name_lists.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kCategories[] = {"core", "low"};
// Prefixes of APIs that exist only with some versions or devices.
constexpr std::string_view kPrefixes[] = {"Functional", "Tensor",      "Torch",     "VF",
                                          "NPU",        "Distributed", "MindSpeed", "Aten"};

}  // namespace

Result<ApiRules> ApiRules::Read(const std::string& risk_levels, const std::string& ignored_values) {
  ApiRules rules;
  MSPROBE_ASSIGN_OR_RETURN(formats::NameLists lists, formats::ReadNameLists(risk_levels));
  for (auto& [category, names] : lists) {
    if (!Contains(kCategories, category))
      return InvalidConfig(risk_levels).Expected(OneOf(kCategories)).Found(Quoted(category));
    Set& set = category == "core" ? rules.core_ : rules.low_;
    set.insert(std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
  }
  rules.ignored_path_ = ignored_values;
  MSPROBE_ASSIGN_OR_RETURN(rules.ignored_, formats::ReadIgnoreRules(ignored_values));
  rules.met_.resize(rules.ignored_.size());
  return rules;
}

bool ApiRules::Lists(const Set& names, std::string_view prefix, std::string_view api) {
  return names.find(api) != names.end() || names.count(fmt::format("{}.{}", prefix, api)) > 0 ||
         names.count(fmt::format("{}.*", prefix)) > 0;
}

bool ApiRules::Records(RiskLevel level, std::string_view prefix, std::string_view api) const {
  if (level == RiskLevel::kAll) return true;
  if (Lists(core_, prefix, api)) return true;
  return level == RiskLevel::kFocus && !Lists(low_, prefix, api);
}

const formats::IgnoreRule* ApiRules::IgnoredValuesOf(std::string_view prefix,
                                                     std::string_view api) {
  prefixes_.emplace(prefix);
  for (size_t i = 0; i < ignored_.size(); ++i) {
    if (ignored_[i].prefix != prefix || ignored_[i].api != api) continue;
    met_[i] = true;
    return &ignored_[i];
  }
  return nullptr;
}

std::vector<Message> ApiRules::UnusedRules() const {
  std::vector<Message> lines;
  for (size_t i = 0; i < ignored_.size(); ++i) {
    const formats::IgnoreRule& rule = ignored_[i];
    if (met_[i] || (prefixes_.count(rule.prefix) == 0 && Contains(kPrefixes, rule.prefix)))
      continue;
    lines.push_back("{}:{}: no API is listed as {}.{}: nothing is left out of it"_t(
        ignored_path_, rule.line, rule.prefix, rule.api));
  }
  return lines;
}

}  // namespace msprobe::dump
