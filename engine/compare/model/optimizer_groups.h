// The parameter groups of an optimizer's step: which settings each parameter has. Programs may list
// the same groups in another order, or put a parameter into another group.
//
//   const OptimizerGroups target(c.target, t), golden(c.golden, g);
//   std::vector<int32_t> golden_of = target.PartnersIn(golden);   // {1, 0}: in the other order
//   for (const auto& [name, group] : target.group_of()) Use(name, group);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::compare {

class OptimizerGroups {
 public:
  // Reads "param_groups.<group>.params", the number of parameters, and the order of
  // "weights.<name>". Empty for entries that do not have these numbers, as older ones, and for
  // other calls.
  OptimizerGroups(const Dump& dump, const Record& record);

  bool empty() const { return group_of_.empty(); }
  int32_t size() const { return size_; }
  // The group of each parameter, from 0. Names point into the dump.
  const std::unordered_map<std::string_view, int32_t>& group_of() const { return group_of_; }

  // For each group of this run its partner in the other run; each has one at most; -1: none. Of the
  // groups that share parameters those with equal settings are partners first, then those that
  // share most; groups that are left over are partners in order. Where nothing is known of one run:
  // those of equal number.
  std::vector<int32_t> PartnersIn(const OptimizerGroups& other) const;

 private:
  int32_t size_ = 0;
  std::vector<std::string> settings_;  // of each group: names and values of all that is plain
  std::unordered_map<std::string_view, int32_t> group_of_;
};

// "param_groups.1.lr" -> {1, "lr"}; {-1, ""}: the place is no setting of a group.
struct GroupSetting {
  int32_t group = -1;
  std::string_view name;
};
GroupSetting GroupSettingOf(std::string_view place);

}  // namespace msprobe::compare
