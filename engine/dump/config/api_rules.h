// What users can say of single APIs, apart from config.json, in two files beside the list of APIs:
// how much an API can harm a result (risk_levels.yaml), and which of its values are left out
// (builtin_ignore_ops.yaml). Asked once for each API, not for each call.
//
//   MSPROBE_ASSIGN_OR_RETURN(ApiRules rules, ApiRules::Read(risk_levels, ignored_values));
//   api.recorded = rules.Records(config.risk_level, "Functional", "linear");
//   api.ignored = rules.IgnoredValuesOf("Functional", "linear");
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dump/config/config.h"
#include "engine/formats/ignore_rules.h"

namespace msprobe::dump {

class ApiRules {
 public:
  ApiRules() = default;  // everything is recorded
  // Errors: kNotFound; kInvalidConfig with path and, where the text is wrong, line.
  static Result<ApiRules> Read(const std::string& risk_levels, const std::string& ignored_values);

  bool Records(RiskLevel level, std::string_view prefix, std::string_view api) const;
  // nullptr: none. Stays valid while this object is neither assigned nor destroyed; notes that an
  // API of this name is listed.
  const formats::IgnoreRule* IgnoredValuesOf(std::string_view prefix, std::string_view api);
  // One line for each rule about an API that was never asked for, although the prefix was, or is
  // unknown.
  std::vector<std::string> Unmet() const;

 private:
  using Set = std::set<std::string, std::less<>>;
  static bool Lists(const Set& names, std::string_view prefix, std::string_view api);

  Set core_, low_;
  std::string ignored_path_;
  std::vector<formats::IgnoreRule> ignored_;
  std::vector<bool> met_;  // by rule
  Set prefixes_;           // asked for
};

}  // namespace msprobe::dump
