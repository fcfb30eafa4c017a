#include "engine/accuracy/rounding_steps.h"

#include <cmath>

namespace msprobe::accuracy {
namespace {

// The standard deviation of a rounding, in units of the last place: 1 / sqrt(12).
constexpr double kRoundingDeviation = 0.29;

// One bit of chance for each element; 64 of them at a time.
uint64_t SignsOf(uint64_t seed, uint64_t block) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + block * 0xbf58476d1ce4e5b9 + 0x94d049bb133111eb;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

double* Elements(const TensorView& view) {
  return static_cast<double*>(const_cast<void*>(view.data));
}

}  // namespace

std::optional<FloatFormat> FormatOf(DType dtype) {
  const DTypeFacts& facts = FactsOf(dtype);
  return facts.kind == DTypeKind::kFloat && facts.size > 1 ? std::optional(facts.format)
                                                           : std::nullopt;
}

double Rounded(double x, const FloatFormat& format) {
  if (!std::isfinite(x)) return x;
  const double unit = UnitInLastPlace(x, format);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::fabs(rounded) > format.largest ? std::copysign(HUGE_VAL, x) : rounded;
}

bool RoundElements(const TensorView& view, const FloatFormat& format) {
  double* const x = Elements(view);
  bool changed = false;
  for (int64_t i = 0, n = view.numel(); i < n; ++i) {
    const double rounded = Rounded(x[i], format);
    changed |= rounded != x[i] && !std::isnan(x[i]);
    x[i] = rounded;
  }
  return changed;
}

void MoveByRoundings(const TensorView& view, const RoundingSteps& steps) {
  double* const x = Elements(view);
  uint64_t signs = 0;
  for (int64_t i = 0, n = view.numel(); i < n; ++i, signs >>= 1) {
    if (i % 64 == 0) signs = SignsOf(steps.seed, static_cast<uint64_t>(i / 64));
    const double value = x[i];
    if (value == 0 || !std::isfinite(value)) continue;
    double step = steps.relative * std::fabs(value);
    if (steps.unrounded) step += kRoundingDeviation * UnitInLastPlace(value, *steps.unrounded);
    x[i] = value + ((signs & 1) != 0 ? step : -step);
    // Rounding would have made it infinite.
    if (steps.unrounded && std::fabs(value) > steps.unrounded->largest * 1.001)
      x[i] = std::copysign(HUGE_VAL, value);
  }
}

}  // namespace msprobe::accuracy
