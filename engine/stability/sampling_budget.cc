#include "engine/stability/sampling_budget.h"

#include <algorithm>

namespace msprobe::stability {
namespace {

constexpr int64_t kLongestPeriod = 1 << 20;

// FNV-1a, and a last step that mixes all bits into the low ones, which choose.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  return hash ^ hash >> 32;
}

}  // namespace

// Time that went by since the last call, without what was spent in it, is the training's own.
void SamplingBudget::Earn(double now) {
  if (last_ >= 0) {
    const double own = std::max(0.0, now - last_ - (spent_ - last_spent_));
    left_ = std::min(left_ + own * share_, std::max(most_, left_));
  }
  if (step_begin_ < 0) step_begin_ = now;
  last_ = now;
  last_spent_ = spent_;
}

SamplingBudget::Choice SamplingBudget::Choose(std::string_view name, double now) {
  const auto turn = static_cast<uint64_t>(steps_) & static_cast<uint64_t>(period_ - 1);
  if ((HashOf(name) & static_cast<uint64_t>(period_ - 1)) != turn) return Choice::kNotDue;
  if (share_ == 0) return Choice::kSampled;
  Earn(now);
  if (left_ > 0) return Choice::kSampled;
  ++used_up_;
  return Choice::kUsedUp;
}

void SamplingBudget::EndStep(double now) {
  ++steps_;
  if (share_ == 0) return;
  Earn(now);
  const double spent = spent_ - step_spent_;
  const double allowed = std::max(0.0, now - step_begin_ - spent) * share_;
  most_ = std::max(kFreeSeconds, allowed);
  if (used_up_ > 0) {
    period_ = std::min(period_ * 2, kLongestPeriod);
  } else if (spent * 4 < allowed) {
    period_ = std::max<int64_t>(period_ / 2, 1);
  }
  used_up_ = 0;
  step_begin_ = now;
  step_spent_ = spent_;
}

}  // namespace msprobe::stability
