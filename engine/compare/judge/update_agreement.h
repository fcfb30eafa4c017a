// Whether two runs that round differently changed their weights alike. Weights behind an optimizer
// cannot be judged by roundings: AdamW divides each gradient by its own size, so the rounding of a
// gradient that is zero in theory decides where that weight goes. But most weights move alike,
// unless the update itself is another one. Rounding moves each weight apart in its own way; where
// all weights are apart by one factor, the update has another learning rate, decay or momentum.
//
//   UpdateAgreement updates;
//   updates.Add({.before = {8.1, 8.1}, .after = {8.2, 8.3}});     // of each weight
//   const bool alike = updates.agrees();                          // the median weight moved alike
//   const UpdateFault fault = updates.fault();                    // kRate: all by the same factor
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace msprobe::compare {

// One number in both runs.
struct BothSides {
  double target = 0, golden = 0;
};

// One statistic (norm, maximum, minimum) of one weight.
struct WeightMovement {
  BothSides before, after;
  BothSides earlier = {NAN, NAN};  // one update before `before`; NaN: not known
  double epsilon = 0;              // one rounding of a number of 1 in the weight's dtype; 0: exact
  uint32_t weight = 0;             // index of the weight: its statistics count as one
  uint8_t statistic = 0;           // 0: norm; 1: maximum; 2: minimum
};

// What all weights that moved differently have in common.
struct UpdateFault {
  enum class Kind : uint8_t {
    kNone,
    kRate,      // the target moves them `factor` times as far as the golden
    kDecay,     // the target moves them by further `factor` times their own size
    kMomentum,  // the target adds `factor` times the movement before
    kOther,     // by no common factor; `factor`: of the movement, in the median
    kHistory,   // so, and the update before moved them alike: what an optimizer keeps is another
  };
  Kind kind = Kind::kNone;
  double factor = 0;
};

class UpdateAgreement {
 public:
  // Ignored where neither run changed it, and where a number is not finite.
  void Add(const WeightMovement& movement);
  // Whether the movements of each statistic differ by at most a quarter, in the median, and have no
  // fault. A norm shows what happens to all elements, a maximum one of them: Adam moves nearly each
  // element by its rate, whatever weight decay is added to its gradient. False: nothing was added.
  bool agrees() const;
  // How far the movements are apart, of the movement and in the median, if rounding of the
  // gradients does not explain it; else 0. `gradient_noise`: their relative error, NaN if it is not
  // known. What an optimizer enlarges are single elements, so the median weight of two right runs
  // in float32 moves alike to the last bits: none of 123 pairs was apart by a ten millionth, and
  // beta2 of 0.999 for 0.99 puts them apart by a thousandth.
  double otherwise(double gradient_noise) const;
  // The one fault that explains what is apart by many roundings of the weights; kNone: there is
  // none.
  UpdateFault fault() const;

 private:
  struct Moved {
    double target, golden;  // movement
    double was;             // of the golden, before
    double earlier;         // movement before, of the golden; NaN: not known
    double roundings;       // between the two movements, in roundings of the weight
    uint32_t weight;
    uint8_t statistic;
  };
  static UpdateFault FaultOf(const std::vector<Moved>& moved);

  std::vector<Moved> moved_;
};

}  // namespace msprobe::compare
