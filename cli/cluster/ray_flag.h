// --ray of `msprobe compare`: nodes of a cluster compare the ranks, with the other flags of the
// command line.
//
//   RayFlag ray_;
//   ray_.Add(flags);                                             // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(RayComparison wanted, ray_.Wanted("new", "good", "out", ranks_));
#pragma once

#include <string>

#include "cli/cluster/compare_on_ray.h"
#include "cli/command_line/flags.h"
#include "cli/inputs/rank_flags.h"
#include "engine/base/status.h"

namespace msprobe::cli {

class RayFlag {
 public:
  void Add(Flags& flags);  // which outlive this
  bool given() const { return !address_.empty(); }
  // All but `selection` and `report`. kInvalidArgument for flags that do not go together with it.
  Result<RayComparison> Wanted(const std::string& target, const std::string& golden,
                               const std::string& folder, const RankFlags& ranks) const;

 private:
  std::string address_;
  const Flags* flags_ = nullptr;  // all flags of the verb
};

}  // namespace msprobe::cli
