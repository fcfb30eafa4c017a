// The entry that has what lay in .grad of the parameters of a model when a backward pass began:
// "Optimizer.gradients_before.1.forward" of backward pass 1 of the step. Its output has a tensor
// for each parameter in whose .grad something lay that is not all zeros; where nothing lay, there
// is no entry. The header of a dump that has such entries, or would have them, says so in its
// provenance.
#pragma once

#include <string_view>

namespace msprobe {

inline constexpr std::string_view kGradientsBefore = "Optimizer.gradients_before.";
// In the provenance of dumps that say what lay there: {"gradients_before": true}.
inline constexpr std::string_view kTellsGradientsBefore = "gradients_before";

inline bool IsGradientsBefore(std::string_view entry) {
  return entry.starts_with(kGradientsBefore);
}

}  // namespace msprobe
