// Which calls are run a second time, so that the run takes no longer than the budget allows.
//
// One call in `period` is due in a step, by its name and the number of steps before: a call that is
// due now is due again `period` steps later, and in between every other call has its turn. The
// period is a power of two, and only changes between steps: it doubles when the budget did not
// suffice, and halves when more than three quarters of it were left. So the choice is the same for
// equal periods, and the calls of a longer period are among those of a shorter one. Within a step,
// a call that is due is left out when the budget is used up.
//
//   SamplingBudget budget(1.0);               // second runs may take as long as the training
//   switch (budget.Choose(name, now)) ...     // seconds of any steady clock
//   budget.Spend(seconds);                    // of one second run
//   budget.EndStep(now);
#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe::stability {

class SamplingBudget {
 public:
  static constexpr double kFreeSeconds = 1;  // what may be spent before the first step has ended
  enum class Choice : uint8_t { kSampled, kNotDue, kUsedUp };

  // `share`: extra time as a share of the training's own time; 0: no limit.
  explicit SamplingBudget(double share = 0) : share_(share) {}

  Choice Choose(std::string_view name, double now);
  void Spend(double seconds) {
    spent_ += seconds;
    left_ -= seconds;
  }
  void EndStep(double now);

  int64_t period() const { return period_; }
  double spent() const { return spent_; }  // seconds, in the whole run

 private:
  void Earn(double now);

  double share_;
  int64_t period_ = 1, steps_ = 0;
  double last_ = -1, last_spent_ = 0;        // at the last call of Earn
  double left_ = kFreeSeconds, spent_ = 0;   // seconds
  double step_begin_ = -1, step_spent_ = 0;  // at the beginning of the step
  int64_t used_up_ = 0;                      // calls of this step that were left out
  double most_ = kFreeSeconds;               // what can be saved for later
};

}  // namespace msprobe::stability
