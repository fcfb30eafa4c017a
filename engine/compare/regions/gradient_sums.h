// The gradient of a tensor that several calls take is the sum of their gradients. Autograd adds them
// up in no recorded call: the sum is seen where the backward call of the tensor's maker takes it.
//
//   const GradientSums sums(comparison);
//   for (const int32_t p : sums.TakersOf(backward_pair, /*target=*/true)) Look(p);
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_map.h"

namespace msprobe::compare {

class GradientSums {
 public:
  explicit GradientSums(const Comparison& comparison);

  // The backward calls that take the sums to which the results of a backward call belong: those of
  // the calls that made what its forward call takes. Empty: none is recorded.
  std::vector<int32_t> TakersOf(int32_t backward, bool target) const;

 private:
  const Comparison& c_;
  std::vector<int32_t> backward_of_;  // for each pair of forward calls; -1: none
  ContentMap makers_[2];              // content -> pair of the forward call
};

}  // namespace msprobe::compare
