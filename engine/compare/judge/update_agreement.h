// Whether two runs that round differently changed their weights alike. Weights behind an optimizer
// cannot be judged by roundings: AdamW divides each gradient by its own size, so the rounding of a
// gradient that is zero in theory decides where that weight goes. But most weights move alike,
// unless the update itself is another one.
//
//   UpdateAgreement updates;
//   updates.Add({.target = 8.1, .golden = 8.1}, {.target = 8.2, .golden = 8.3});   // of each weight
//   const bool alike = updates.agrees();   // the median weight moved alike
#pragma once

#include <vector>

namespace msprobe::compare {

// One number in both runs.
struct BothSides {
  double target = 0, golden = 0;
};

class UpdateAgreement {
 public:
  // One statistic (norm, maximum, minimum) of one weight. Ignored where neither run changed it, and
  // where a number is not finite.
  void Add(BothSides before, BothSides after);
  // Whether the movements differ by at most a quarter, in the median. False: nothing was added.
  bool agrees() const;

 private:
  std::vector<double> apart_;  // |movement - movement| / the larger one
};

}  // namespace msprobe::compare
