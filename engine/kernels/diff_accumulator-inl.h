// The values that the difference kernel accumulates in the virtual lanes: sums, extrema and counts
// of finite pairs, and counts of pairs that are not finite.
#if defined(ENGINE_KERNELS_DIFF_ACCUMULATOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_DIFF_ACCUMULATOR_INL_H_
#undef ENGINE_KERNELS_DIFF_ACCUMULATOR_INL_H_
#else
#define ENGINE_KERNELS_DIFF_ACCUMULATOR_INL_H_
#endif

#include "engine/kernels/diff_node.h"
#include "engine/kernels/lanes-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Sums, extrema and counts over the lanes. Padding is zero on both sides: it does not change sums
// and extrema, and Finish subtracts it from the counts.
class DiffAccumulator {
 public:
  explicit HWY_INLINE DiffAccumulator(double epsilon) : epsilon_(hn::Set(DoubleTag(), epsilon)) {
    const auto zero = hn::Zero(DoubleTag());
    for (size_t k = 0; k < kDoubleVecs; ++k)
      tt_[k] = gg_[k] = tg_[k] = dd_[k] = relative_[k] = zero;
    max_abs_ = max_relative_ = zero;
    golden_zero_ = within_1e3_ = within_5e3_ = hn::Zero(LongTag());
  }

  DoubleVec Shift(DoubleVec t) const { return hn::Sub(hn::Add(t, epsilon_), epsilon_); }

  // Adds to vector `k` of the lanes. Multiplication and addition may be fused for values whose
  // products are exact.
  template <bool kExactProducts>
  HWY_INLINE void AddReal(size_t k, DoubleVec t, DoubleVec g, DoubleVec distance) {
    if constexpr (kExactProducts) {
      tt_[k] = hn::MulAdd(t, t, tt_[k]);
      gg_[k] = hn::MulAdd(g, g, gg_[k]);
      tg_[k] = hn::MulAdd(t, g, tg_[k]);
    } else {
      tt_[k] = hn::Add(tt_[k], hn::Mul(t, t));
      gg_[k] = hn::Add(gg_[k], hn::Mul(g, g));
      tg_[k] = hn::Add(tg_[k], hn::Mul(t, g));
    }
    AddErrors(k, distance, hn::Abs(g), hn::Abs(Shift(t)));
  }

  HWY_INLINE void AddProducts(size_t k, DoubleVec tt, DoubleVec gg, DoubleVec tg) {
    tt_[k] = hn::Add(tt_[k], tt);
    gg_[k] = hn::Add(gg_[k], gg);
    tg_[k] = hn::Add(tg_[k], tg);
  }

  // `shifted`: |T + eps - eps|, the numerator where the golden is zero.
  HWY_INLINE void AddErrors(size_t k, DoubleVec distance, DoubleVec golden, DoubleVec shifted) {
    const DoubleTag dd;
    const auto zero = hn::Eq(golden, hn::Zero(dd));
    const auto error =
        hn::Div(hn::IfThenElse(zero, shifted, distance), hn::IfThenElse(zero, epsilon_, golden));
    dd_[k] = hn::Add(dd_[k], hn::Mul(distance, distance));
    relative_[k] = hn::Add(relative_[k], hn::IfThenZeroElse(zero, error));
    max_abs_ = hn::Max(max_abs_, distance);
    max_relative_ = hn::Max(max_relative_, error);
    Count(golden_zero_, zero);
    Count(within_1e3_, hn::Lt(error, hn::Set(dd, 0.001)));
    Count(within_5e3_, hn::Lt(error, hn::Set(dd, 0.005)));
  }

  // To be called after `n` values and `padding` zeros were added. `left_out`: how many of the n
  // pairs were not finite and were added as zeros; node->mismatch of them differ.
  HWY_INLINE void Finish(int64_t n, int64_t padding, int64_t left_out, DiffNode* node) {
    node->tt = AddLanes(tt_);
    node->gg = AddLanes(gg_);
    node->tg = AddLanes(tg_);
    node->dd = AddLanes(dd_);
    node->relative = AddLanes(relative_);
    node->max_abs = hn::GetLane(hn::MaxOfLanes(DoubleTag(), max_abs_));
    node->max_relative = hn::GetLane(hn::MaxOfLanes(DoubleTag(), max_relative_));
    node->finite = n - left_out;
    node->golden_zero = Total(golden_zero_) - padding - left_out;
    node->within_1e3 = Total(within_1e3_) - padding - node->mismatch;
    node->within_5e3 = Total(within_5e3_) - padding - node->mismatch;
  }

  template <class M>
  static HWY_INLINE void Count(LongVec& counter, M mask) {
    counter = hn::Sub(counter, hn::VecFromMask(LongTag(), hn::RebindMask(LongTag(), mask)));
  }
  static HWY_INLINE int64_t Total(LongVec counter) {
    return hn::GetLane(hn::SumOfLanes(LongTag(), counter));
  }

 private:
  DoubleVec tt_[kDoubleVecs], gg_[kDoubleVecs], tg_[kDoubleVecs], dd_[kDoubleVecs],
      relative_[kDoubleVecs];
  DoubleVec max_abs_, max_relative_, epsilon_;
  LongVec golden_zero_, within_1e3_, within_5e3_;
};

// Counts the pairs that are not finite, and replaces them by zeros.
struct SpecialCounter {
  LongVec target, golden, unequal, mismatch, left_out;

  HWY_INLINE SpecialCounter() {
    target = golden = unequal = mismatch = left_out = hn::Zero(LongTag());
  }

  // `same`: equal, or NaN on both sides.
  template <class M>
  HWY_INLINE M Add(M target_finite, M golden_finite, M same) {
    const M finite = hn::And(target_finite, golden_finite);
    DiffAccumulator::Count(target, hn::Not(target_finite));
    DiffAccumulator::Count(golden, hn::Not(golden_finite));
    DiffAccumulator::Count(unequal, hn::Not(same));
    DiffAccumulator::Count(mismatch, hn::Not(hn::Or(finite, same)));
    DiffAccumulator::Count(left_out, hn::Not(finite));
    return finite;
  }
  // Returns the number left out.
  HWY_INLINE int64_t Finish(DiffNode* node) const {
    node->nonfinite_target = DiffAccumulator::Total(target);
    node->nonfinite_golden = DiffAccumulator::Total(golden);
    node->unequal = DiffAccumulator::Total(unequal);
    node->mismatch = DiffAccumulator::Total(mismatch);
    return DiffAccumulator::Total(left_out);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
