// Rules for single APIs, in two files beside the list of APIs: how much an API can harm a result
// (risk_levels.yaml), and which of its values are not recorded (builtin_ignore_ops.yaml). They are
// looked up once for each API, not for each call.
//
//   MSPROBE_ASSIGN_OR_RETURN(ApiRules rules, ApiRules::Read(risk_levels, ignored_values));
//   api.recorded = rules.Records(config.risk_level, "Functional", "linear");
//   api.ignored = rules.IgnoredValuesOf("Functional", "linear");
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config.h"
#include "engine/formats/text/ignore_rules.h"

namespace msprobe::dump {

class ApiRules {
 public:
  ApiRules() = default;  // no rules: everything is recorded
  // Errors: kNotFound; kInvalidConfig with path and, where the text is wrong, line.
  static Result<ApiRules> Read(const std::string& risk_levels, const std::string& ignored_values);

  bool Records(RiskLevel level, std::string_view prefix, std::string_view api) const;
  // The rule for an API; nullptr: none. Valid until this object is assigned or destroyed. Remembers
  // that an API of this name is listed, for Unmet.
  const formats::IgnoreRule* IgnoredValuesOf(std::string_view prefix, std::string_view api);
  // A line for each rule whose API is not listed: its prefix is unknown, or others with its prefix
  // were looked up and it was not.
  std::vector<Message> UnusedRules() const;

 private:
  using Set = std::set<std::string, std::less<>>;
  static bool Lists(const Set& names, std::string_view prefix, std::string_view api);

  Set core_, low_;
  std::string ignored_path_;
  std::vector<formats::IgnoreRule> ignored_;
  std::vector<bool> met_;  // by rule: whether its API was looked up
  Set prefixes_;           // of the APIs that were looked up
};

}  // namespace msprobe::dump
