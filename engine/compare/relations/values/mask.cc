#include "engine/compare/relations/values/mask.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::relations {

Mask MaskOf(const Value& value) {
  const Moments& m = value.moments;
  if (!m.known || value.plain) return {};
  Mask mask;
  mask.n = value.shape.elements();
  if (value.dtype.dtype() == DType::kBool) {
    mask.coding = Mask::kBool;
    mask.k = m.zeros;
  } else if (m.extremes > 0 && m.high == 0 && m.low == 0) {
    mask.coding = Mask::kAdded;
    mask.k = m.extremes;
  } else if (m.high == 1 && m.low == 0 && m.zeros > 0 &&
             std::abs(m.norm * m.norm - static_cast<double>(mask.n - m.zeros)) < 1e-3) {
    mask.coding = Mask::kFactor;
    mask.k = m.zeros;
  }
  if (mask.k <= 0 || mask.k >= mask.n) return {};
  mask.k = std::min(mask.k, mask.n - mask.k);
  return mask;
}

double BitsOf(const Value& value) {
  const Moments& m = value.moments;
  if (const Mask mask = MaskOf(value); mask.coding != Mask::kNone) {
    const auto n = static_cast<double>(mask.n), k = static_cast<double>(mask.k);
    return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2);
  }
  if (!m.known || value.IsFloat()) return std::numeric_limits<double>::infinity();
  return static_cast<double>(m.n) * std::log2(m.high - m.low + 1);
}

uint64_t MaskKey(const Mask& mask) {
  return MixKeys(MixKeys(99, static_cast<uint64_t>(mask.n)), static_cast<uint64_t>(mask.k));
}

}  // namespace msprobe::compare::relations
