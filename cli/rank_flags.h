// --rank, --step and --common of `msprobe compare`: which dumps of two runs are compared.
//
//   RankFlags flags;
//   flags.Add(app);                                             // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(PairOptions options, flags.Options());
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/compare_inputs.h"
#include "engine/base/status.h"

namespace msprobe::cli {

struct RankFlags {
  std::string ranks, steps;
  bool common = false, by_order = false;

  void Add(CLI::App& app);
  bool given() const { return !ranks.empty() || !steps.empty() || common; }
  // kInvalidArgument: not a list such as 0,2-5.
  Result<PairOptions> Options() const;
};

}  // namespace msprobe::cli
