#include "engine/kernels/accuracy.h"

#include "engine/kernels/accuracy_node.h"
#include "engine/kernels/accuracy_scalar.h"
#include "engine/kernels/chunk_pair.h"
#include "engine/kernels/chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/accuracy.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkAccuracy(const ChunkPair& c, const AccuracyFactors& factors, AccuracyNode* node) {
  *node = ChunkAccuracyScalar(c.t, c.tp, c.g, c.gp, c.n, factors);
}

#else

class AccuracyAccumulator {
 public:
  explicit HWY_INLINE AccuracyAccumulator(const AccuracyFactors& f)
      : epsilon_(Set(f.limits.epsilon)),
        small_value_(Set(f.limits.small_value)),
        atol_(Set(f.limits.small_atol)),
        rtol_(Set(f.limits.rtol)),
        ulp_limit_(Set(f.limits.ulp_limit)),
        up_(Set(f.up)),
        down_(Set(f.down)),
        ulp_up_(Set(f.ulp_up)),
        least_(Set(f.least)),
        at_zero_(Set(f.at_zero)),
        largest_(Set(f.largest)) {
    const auto zero = hn::Zero(DoubleTag());
    for (size_t k = 0; k < kDoubleVecs; ++k)
      dd_[k] = gg_[k] = dg_[k] = squares_[k] = relative_[k] = ulp_[k] = zero;
    max_device_ = max_golden_ = max_error_ = max_relative_ = max_ulp_ = zero;
    finite_ = inexact_ = within_1e2_ = within_1e3_ = within_1e4_ = above_ = below_ = small_ =
        small_failures_ = relative_failures_ = ulp_above_ = hn::Zero(LongTag());
  }

  // Adds to vector `k` of the lanes. A pair that is not finite counts as two zeros, like padding;
  // Finish subtracts both from the counts.
  HWY_INLINE void Add(size_t k, DoubleVec d, DoubleVec g) {
    const DoubleTag dd;
    const LongTag dl;
    const auto bits = hn::And(hn::BitCast(dl, g), hn::Set(dl, 0x7ff0000000000000));
    auto power = hn::Min(hn::Max(hn::BitCast(dd, bits), least_), Set(AccuracyFactors::kMost));
    power = hn::IfThenElse(hn::Eq(g, hn::Zero(dd)), at_zero_, power);
    const auto inverse =
        hn::BitCast(dd, hn::Sub(hn::Set(dl, int64_t{2046} << 52), hn::BitCast(dl, power)));
    auto r = hn::Mul(hn::Round(hn::Mul(hn::Mul(g, inverse), up_)), hn::Mul(power, down_));
    // NaN is not below any number.
    const auto finite = hn::And(hn::Le(hn::Abs(r), largest_),
                                hn::Lt(hn::Abs(d), Set(std::numeric_limits<double>::infinity())));
    Count(finite_, finite);
    d = hn::IfThenElseZero(finite, d);
    g = hn::IfThenElseZero(finite, g);
    r = hn::IfThenElseZero(finite, r);
    Count(above_, hn::Gt(d, r));
    Count(below_, hn::Lt(d, r));
    dd_[k] = hn::Add(dd_[k], hn::Mul(d, d));
    gg_[k] = hn::Add(gg_[k], hn::Mul(g, g));
    dg_[k] = hn::Add(dg_[k], hn::Mul(d, g));
    const auto size = hn::Abs(g), error = hn::Abs(hn::Sub(d, g));
    max_device_ = hn::Max(max_device_, hn::Abs(d));
    max_golden_ = hn::Max(max_golden_, size);
    max_error_ = hn::Max(max_error_, error);
    Count(inexact_, hn::Ne(d, g));
    AddRelative(k, size, error);
    const auto ulp = hn::Mul(hn::Mul(error, inverse), ulp_up_);
    max_ulp_ = hn::Max(max_ulp_, ulp);
    ulp_[k] = hn::Add(ulp_[k], ulp);
    Count(ulp_above_, hn::Gt(ulp, ulp_limit_));
  }

  // After `padded` values were added, the last of them zeros after the `n` of the tensors.
  HWY_INLINE void Finish(int64_t n, int64_t padded, AccuracyNode* node) {
    node->count = n;
    node->finite = Total(finite_) - (padded - n);
    const int64_t zeros = padded - node->finite;  // what counted as two zeros
    node->max_device = Most(max_device_);
    node->max_golden = Most(max_golden_);
    node->max_error = Most(max_error_);
    node->max_relative = Most(max_relative_);
    node->max_ulp = Most(max_ulp_);
    node->dd = AddLanes(dd_);
    node->gg = AddLanes(gg_);
    node->dg = AddLanes(dg_);
    node->squared_errors = AddLanes(squares_);
    node->sum_relative = AddLanes(relative_);
    node->sum_ulp = AddLanes(ulp_);
    node->within_1e2 = Total(within_1e2_) - zeros;
    node->within_1e3 = Total(within_1e3_) - zeros;
    node->within_1e4 = Total(within_1e4_) - zeros;
    node->above = Total(above_);
    node->below = Total(below_);
    node->unequal = node->above + node->below;
    node->inexact = Total(inexact_);
    node->small = Total(small_) - zeros;
    node->small_failures = Total(small_failures_);
    node->normal = node->finite - node->small;
    node->relative_failures = Total(relative_failures_);
    node->ulp_above = Total(ulp_above_);
  }

 private:
  HWY_INLINE void AddRelative(size_t k, DoubleVec size, DoubleVec error) {
    const DoubleTag dd;
    const auto relative = hn::Div(error, hn::Add(size, epsilon_));
    Count(within_1e2_, hn::Lt(relative, hn::Set(dd, 0.01)));
    Count(within_1e3_, hn::Lt(relative, hn::Set(dd, 0.001)));
    Count(within_1e4_, hn::Lt(relative, hn::Set(dd, 0.0001)));
    const auto small = hn::Le(size, small_value_);
    Count(small_, small);
    Count(small_failures_, hn::And(small, hn::Gt(error, atol_)));
    const auto normal_relative = hn::IfThenZeroElse(small, relative);
    const auto normal_error = hn::IfThenZeroElse(small, error);
    Count(relative_failures_, hn::Gt(normal_relative, rtol_));
    max_relative_ = hn::Max(max_relative_, normal_relative);
    relative_[k] = hn::Add(relative_[k], normal_relative);
    squares_[k] = hn::Add(squares_[k], hn::Mul(normal_error, normal_error));
  }
  static HWY_INLINE DoubleVec Set(double value) { return hn::Set(DoubleTag(), value); }
  template <class M>
  static HWY_INLINE void Count(LongVec& counter, M mask) {
    counter = hn::Sub(counter, hn::VecFromMask(LongTag(), hn::RebindMask(LongTag(), mask)));
  }
  static HWY_INLINE int64_t Total(LongVec counter) {
    return hn::GetLane(hn::SumOfLanes(LongTag(), counter));
  }
  static HWY_INLINE double Most(DoubleVec v) { return hn::GetLane(hn::MaxOfLanes(DoubleTag(), v)); }

  DoubleVec epsilon_, small_value_, atol_, rtol_, ulp_limit_, up_, down_, ulp_up_, least_, at_zero_,
      largest_;
  DoubleVec dd_[kDoubleVecs], gg_[kDoubleVecs], dg_[kDoubleVecs], squares_[kDoubleVecs],
      relative_[kDoubleVecs], ulp_[kDoubleVecs];
  DoubleVec max_device_, max_golden_, max_error_, max_relative_, max_ulp_;
  LongVec finite_, inexact_, within_1e2_, within_1e3_, within_1e4_, above_, below_, small_,
      small_failures_, relative_failures_, ulp_above_;
};

// Both sides of a block fill half of an L1 cache.
constexpr int64_t kBlock = 1024;

HWY_INLINE void DecodeBlock(DType dtype, const uint8_t* p, int64_t n, double* out) {
  DecodeDoubles(dtype, p, n, out);
  for (int64_t i = n; i % static_cast<int64_t>(kLanes) != 0; ++i) out[i] = 0.0;
}

// Pairs that are not finite are rare: they are visited one by one, in a chunk that has any.
HWY_NOINLINE void AddNonfinitePairs(const ChunkPair& c, const AccuracyFactors& factors,
                                    AccuracyNode* node) {
  alignas(64) double d[kChunkElements], g[kChunkElements];
  DecodeDoubles(c.t, c.tp, c.n, d);
  DecodeDoubles(c.g, c.gp, c.n, g);
  for (int64_t i = 0; i < c.n; ++i) {
    const double r = factors.Round(g[i], factors.Power(g[i]));
    if (!std::isfinite(d[i]) || !(std::fabs(r) <= factors.largest))
      node->AddNonfinite(d[i], g[i], factors);
  }
}

void ChunkAccuracy(const ChunkPair& c, const AccuracyFactors& factors, AccuracyNode* node) {
  const int64_t d_size = static_cast<int64_t>(DTypeSize(c.t)),
                g_size = static_cast<int64_t>(DTypeSize(c.g));
  alignas(64) double d[kBlock], g[kBlock];
  AccuracyAccumulator accumulator(factors);
  int64_t padded = 0;
  for (int64_t first = 0; first < c.n; first += kBlock) {
    const int64_t n = std::min(kBlock, c.n - first);
    for (int64_t at = 0; at < n * d_size; at += 64) PrefetchAhead(c.tp + first * d_size + at);
    for (int64_t at = 0; at < n * g_size; at += 64) PrefetchAhead(c.gp + first * g_size + at);
    DecodeBlock(c.t, c.tp + first * d_size, n, d);
    DecodeBlock(c.g, c.gp + first * g_size, n, g);
    for (int64_t i = 0; i < n; i += static_cast<int64_t>(kLanes)) {
      for (size_t k = 0; k < kDoubleVecs; ++k) {
        const size_t at = static_cast<size_t>(i) + k * kDoublesPerVec;
        accumulator.Add(k, hn::Load(DoubleTag(), d + at), hn::Load(DoubleTag(), g + at));
      }
      padded += static_cast<int64_t>(kLanes);
    }
  }
  accumulator.Finish(c.n, padded, node);
  if (node->finite < c.n) AddNonfinitePairs(c, factors, node);
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
namespace {

HWY_EXPORT(ChunkAccuracy);

AccuracyNode AccuracyOfChunk(const ChunkPair& pair, const AccuracyFactors& factors) {
  AccuracyNode node;
  HWY_DYNAMIC_DISPATCH(ChunkAccuracy)(pair, factors, &node);
  return node;
}

}  // namespace

bool HasAccuracy(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
      return true;
    default:
      return false;
  }
}

double Accuracy::Cosine() const {
  constexpr double kLeast = 0x1p-900;
  if (!std::isfinite(dd + gg + dg) || dd < kLeast || gg < kLeast)
    return std::numeric_limits<double>::quiet_NaN();
  if (dg == dd && dg == gg) return 1.0;
  return std::clamp(dg / std::sqrt(dd) / std::sqrt(gg), -1.0, 1.0);
}

Result<Accuracy> ComputeAccuracy(const TensorView& device, const TensorView& golden,
                                 const AccuracyLimits& limits, ThreadPool* pool) {
  const int64_t count = device.numel();
  if (count != golden.numel()) {
    return InvalidArgument("cannot compare tensors of different size"_t)
        .Expected("{} elements in the golden, as in the device's tensor of shape {}"_t(
            count, ShapeText(device.dims())))
        .Found("{} of shape {}"_t(golden.numel(), ShapeText(golden.dims())));
  }
  for (const DType dtype : {device.dtype, golden.dtype, limits.golden_as, limits.ulp_of}) {
    if (!HasAccuracy(dtype)) {
      return Unsupported("accuracy is measured for floats of at least 8 bits, not for {}"_t(
          DTypeShortName(dtype)));
    }
  }
  if (count == 0) return Accuracy();
  const FloatEnvironment environment;
  const AccuracyFactors factors(limits);
  const ChunkPairReader reader(device, golden);
  using Windows = ChunkPairReader::Windows;
  return Result<Accuracy>(FoldChunks<AccuracyNode, Windows>(
      count, pool, [&](int64_t first, int64_t n, int64_t, Windows& windows) {
        return AccuracyOfChunk(reader.Read(first, n, &windows), factors);
      }));
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
