// Whether two runs on equally many ranks are in different parallel layouts: four tensor-parallel
// ranks against four data-parallel ones. What the ranks hold of the same values tells: parts of
// other shapes that fill the same whole. Ranks of one layout hold the same parts, and are compared
// one by one.
//
//   MSPROBE_ASSIGN_OR_RETURN(bool other, AreOtherLayouts(target_ranks, golden_ranks));
#pragma once

#include <span>
#include <string>

#include "engine/base/status.h"

namespace msprobe::compare::layouts {

// The dumps of all ranks of one step, of both sides, as many, in the order of their ranks. False
// where dumps do not say how many ranks the run had. Errors: those of reading a dump.
Result<bool> AreOtherLayouts(std::span<const std::string> target,
                             std::span<const std::string> golden);

}  // namespace msprobe::compare::layouts
