// The gradient of a tensor that several calls take is the sum of their gradients. Autograd adds them
// up in no recorded call: the sum is seen where the backward call of the tensor's maker takes it.
//
//   const GradientSums sums(comparison);
//   for (const int32_t p : sums.TakersOf(backward_pair, /*target=*/true)) Look(p);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_ids.h"

namespace msprobe::compare {

class GradientSums {
 public:
  explicit GradientSums(const Comparison& comparison);

  // The backward calls that take the sums to which the results of a backward call belong: those of
  // the calls that made what its forward call takes. Empty: none is recorded.
  std::vector<int32_t> TakersOf(int32_t backward, bool target) const;

 private:
  const Comparison& c_;
  std::shared_ptr<const ContentIds> content_;
  std::vector<int32_t> backward_of_;  // for each pair of forward calls; -1: none
  std::vector<int32_t> makers_[2];    // for each content the pair of the forward call; -1: none
};

}  // namespace msprobe::compare
