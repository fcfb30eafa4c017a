#include "engine/compare/judge/operation_facts.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {

extern const char* const kOperations;  // operations.yaml, made into a text by CMake

namespace {

constexpr std::array<std::pair<const char*, OperationClass>, 9> kClasses = {{
    {"keeps", OperationClass::kKeeps},
    {"takes", OperationClass::kTakes},
    {"elementwise", OperationClass::kElementwise},
    {"scaling", OperationClass::kScaling},
    {"sum", OperationClass::kSum},
    {"reduction", OperationClass::kReduction},
    {"contraction", OperationClass::kContraction},
    {"normalisation", OperationClass::kNormalisation},
    {"exponential", OperationClass::kExponential},
}};

// Whether one of the words, which are in lower case, occurs in the name.
bool MentionsAny(std::string_view name, const std::vector<std::string>& words) {
  const std::string lower = Lower(name);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return lower.find(word) != std::string::npos;
  });
}

// Rows, each with the flags that the name of a call adds to them.
class Table {
 public:
  Table() {
    const YAML::Node file = YAML::Load(kOperations);
    for (const auto& [name, kind] : kClasses) {
      for (const YAML::Node& operation : file["classes"][name])
        rows_[operation.as<std::string>()].kind = kind;
    }
    for (const YAML::Node& operation : file["means"])
      rows_[operation.as<std::string>()].is_mean = true;
    for (const YAML::Node& optimizer : file["alone"])
      optimizers_[optimizer.as<std::string>()].alone = true;
    for (const YAML::Node& optimizer : file["linear"])
      optimizers_[optimizer.as<std::string>()].linear = true;
    for (const YAML::Node& operation : file["in_place"])
      writes_.insert(operation.as<std::string>());
    for (const YAML::Node& operation : file["buffers"])
      rows_[operation.as<std::string>()].buffers = true;
    for (const YAML::Node& word : file["sums_products"])
      sums_products_.push_back(word.as<std::string>());
    for (const YAML::Node& word : file["amplifies"]) amplifies_.push_back(word.as<std::string>());
    for (auto& [name, facts] : rows_) {
      facts.draws = DrawsRandomNumbers(name);
      facts.sums_products =
          facts.kind == OperationClass::kContraction || MentionsAny(name, sums_products_);
      facts.amplifies = MentionsAny(name, amplifies_);
    }
    for (const auto& [name, facts] : rows_) {
      OperationFacts in_place = facts;
      in_place.in_place = true;
      in_place_.emplace(name, in_place);
    }
    for (size_t i = 0; i < unknown_.size(); ++i) {
      unknown_[i].draws = (i & 1) != 0;
      unknown_[i].in_place = (i & 2) != 0;
      unknown_[i].sums_products = (i & 4) != 0;
      unknown_[i].amplifies = (i & 8) != 0;
    }
    function_.opaque = true;
    exchange_.exchanges = true;
  }

  const OperationFacts& Of(std::string_view api) const {
    if (api.starts_with("Function.")) return function_;
    if (api.starts_with("Distributed.")) return exchange_;
    if (api.starts_with("Optimizer.")) {  // "Optimizer.AdamW.step"
      const std::string_view named = api.substr(api.find('.') + 1);
      const auto row = optimizers_.find(std::string(named.substr(0, named.find('.'))));
      return row == optimizers_.end() ? unknown_[0] : row->second;
    }
    const std::string base(BaseApi(api));
    const std::string_view last = api.substr(api.rfind('.') + 1);
    const bool in_place = !api.starts_with("Module.") && last.ends_with('_') &&
                          (!last.ends_with("__") || writes_.count(base) > 0);
    const auto& rows = in_place ? in_place_ : rows_;
    if (const auto row = rows.find(base); row != rows.end()) return row->second;
    return unknown_[(DrawsRandomNumbers(base) ? 1 : 0) | (in_place ? 2 : 0) |
                    (MentionsAny(base, sums_products_) ? 4 : 0) |
                    (MentionsAny(base, amplifies_) ? 8 : 0)];
  }

 private:
  std::unordered_map<std::string, OperationFacts> rows_, in_place_, optimizers_;
  std::unordered_set<std::string> writes_;
  std::vector<std::string> sums_products_, amplifies_;  // words in names
  std::array<OperationFacts, 16> unknown_;              // by what their names tell
  OperationFacts function_, exchange_;
};

}  // namespace

const OperationFacts& FactsOf(std::string_view api) {
  static const Table table;
  return table.Of(api);
}

}  // namespace msprobe::compare
