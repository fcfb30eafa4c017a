#include "engine/kernels/perturb.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

// A float format: its bits as an integer, and the number that they stand for.
template <typename BitsType, typename NumberType, DType kDType>
struct Format {
  static constexpr int kMantissa = FactsOf(kDType).format.mantissa;
  using Bits = BitsType;
  using Number = NumberType;
  static constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  static constexpr Bits kInfinity = static_cast<Bits>((kSign - 1) >> kMantissa << kMantissa);
  static constexpr Bits kSmallestNormal = static_cast<Bits>(Bits{1} << kMantissa);
};
struct Double : Format<uint64_t, double, DType::kFloat64> {
  static Number Decode(Bits bits) { return std::bit_cast<double>(bits); }
  static Bits Encode(Number value) { return std::bit_cast<uint64_t>(value); }
};
struct Single : Format<uint32_t, float, DType::kFloat32> {
  static Number Decode(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits Encode(Number value) { return std::bit_cast<uint32_t>(value); }
};
struct Half : Format<uint16_t, float, DType::kFloat16> {
  static Number Decode(Bits bits) { return HalfToFloat(bits); }
  static Bits Encode(Number value) { return FloatToHalf(value); }
};
struct BFloat : Format<uint16_t, float, DType::kBFloat16> {
  static Number Decode(Bits bits) { return BFloat16ToFloat(bits); }
  static Bits Encode(Number value) { return FloatToBFloat16(value); }
};

template <typename F>
typename F::Bits Magnitude(typename F::Bits bits) {
  return static_cast<typename F::Bits>(bits & static_cast<typename F::Bits>(~F::kSign));
}

// The next larger number: of a negative one, the one nearer to zero.
template <typename F>
typename F::Bits NextAbove(typename F::Bits bits) {
  return static_cast<typename F::Bits>((bits & F::kSign) != 0 ? bits - 1 : bits + 1);
}

template <typename F>
typename F::Bits WithNoise(typename F::Bits bits, double noise, double smallest) {
  const typename F::Number value = F::Decode(bits);
  if (Magnitude<F>(bits) >= F::kInfinity || !(std::abs(static_cast<double>(value)) > smallest))
    return bits;
  typename F::Bits changed =
      F::Encode(static_cast<typename F::Number>(static_cast<double>(value) + noise));
  if (changed == bits) changed = NextAbove<F>(bits);
  return Magnitude<F>(changed) >= F::kInfinity ? bits : changed;
}

// Sets each element to `change(bits)`; returns how many have got other bits.
template <typename F, typename Change>
int64_t ChangeEach(const TensorView& view, const Change& change) {
  auto* const data = static_cast<typename F::Bits*>(const_cast<void*>(view.data));
  const StridedRuns runs = MakeRuns(view);
  int64_t changed = 0;
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    typename F::Bits* p = data + offset;
    for (int64_t i = 0; i < runs.run; ++i, p += runs.run_stride) {
      const typename F::Bits bits = change(*p);
      changed += bits != *p;
      *p = bits;
    }
  });
  return changed;
}

template <typename Visit>
int64_t ForFloats(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kFloat64:
      return visit(Double());
    case DType::kFloat32:
      return visit(Single());
    case DType::kFloat16:
      return visit(Half());
    case DType::kBFloat16:
      return visit(BFloat());
    default:
      return 0;
  }
}

}  // namespace

int64_t AddNoise(const TensorView& view, double noise) {
  const double smallest = std::sqrt(noise);
  return ForFloats(view.dtype, [&](auto format) {
    using F = decltype(format);
    return ChangeEach<F>(
        view, [&](typename F::Bits bits) { return WithNoise<F>(bits, noise, smallest); });
  });
}

int64_t FlipLastBit(const TensorView& view) {
  return ForFloats(view.dtype, [&](auto format) {
    using F = decltype(format);
    return ChangeEach<F>(view, [](typename F::Bits bits) {
      const typename F::Bits size = Magnitude<F>(bits);
      const bool changes = size > F::kSmallestNormal && size < F::kInfinity;
      return static_cast<typename F::Bits>(bits ^ static_cast<typename F::Bits>(changes));
    });
  });
}

bool SwapEnds(const TensorView& view) {
  if (view.ndim == 0 || view.shape[0] < 2 || view.numel() == 0) return false;
  const std::vector<int64_t> own = ContiguousStrides(view.dims());
  const int64_t* strides = view.strides == nullptr ? own.data() : view.strides;
  const int fixed = std::min(view.ndim, 2);  // dimensions whose ends are swapped
  int64_t last = 0;
  for (int d = 0; d < fixed; ++d) last += (view.shape[d] - 1) * strides[d];
  const StridedRuns runs = MakeRuns({.data = view.data,
                                     .dtype = view.dtype,
                                     .ndim = view.ndim - fixed,
                                     .shape = view.shape + fixed,
                                     .strides = strides + fixed});
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  auto* const first = static_cast<uint8_t*>(const_cast<void*>(view.data));
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    for (int64_t i = 0; i < runs.run; ++i) {
      uint8_t* const p = first + (offset + i * runs.run_stride) * size;
      std::swap_ranges(p, p + size, p + last * size);
    }
  });
  return true;
}

}  // namespace msprobe::kernels
