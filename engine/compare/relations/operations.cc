#include "engine/compare/relations/operations.h"

#include <yaml-cpp/yaml.h>

#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare::relations {

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
    for (auto& [name, facts] : rows_) facts.draws = DrawsRandomNumbers(name);
    for (const auto& [name, facts] : rows_) {
      OperationFacts in_place = facts;
      in_place.in_place = true;
      in_place_.emplace(name, in_place);
    }
    for (const bool draws : {false, true})
      unknown_[draws].draws = unknown_in_place_[draws].draws = draws;
    for (OperationFacts& facts : unknown_in_place_) facts.in_place = true;
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
    const bool draws = DrawsRandomNumbers(base);
    return in_place ? unknown_in_place_[draws] : unknown_[draws];
  }

 private:
  std::unordered_map<std::string, OperationFacts> rows_, in_place_, optimizers_;
  std::unordered_set<std::string> writes_;
  std::array<OperationFacts, 2> unknown_, unknown_in_place_;  // that draw nothing, that draw
  OperationFacts function_, exchange_;
};

}  // namespace

const OperationFacts& FactsOf(std::string_view api) {
  static const Table table;
  return table.Of(api);
}

}  // namespace msprobe::compare::relations
