// --rank, --step and --common of `msprobe compare`: which dumps of two runs are compared.
//
//   RankFlags ranks_;
//   ranks_.Add(flags);                                           // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(PairOptions options, ranks_.Options());
#pragma once

#include <string>

#include "cli/command_line/flags.h"
#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"

namespace msprobe::cli {

struct RankFlags {
  std::string ranks, steps;
  bool common = false, by_order = false;

  void Add(Flags& flags);
  bool given() const { return !ranks.empty() || !steps.empty() || common; }
  // kInvalidArgument for a text that is not a list such as 0,2-5.
  Result<PairOptions> Options() const;
};

}  // namespace msprobe::cli
