#include "engine/compare/judge/carried.h"

#include <algorithm>
#include <cmath>

#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

// A value has cancelled when the size by which it was judged is at least so many times its own. A
// result that carries it on may show so many times its relative difference.
constexpr double kCancelled = 4, kCarried = 2;

bool IsTensorPair(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  return row.target >= 0 && row.golden >= 0 &&
         c.target.leaves[row.target].kind == LeafKind::kTensor &&
         c.golden.leaves[row.golden].kind == LeafKind::kTensor;
}

bool IsResult(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  const Leaf& leaf = row.golden >= 0 ? c.golden.leaves[row.golden] : c.target.leaves[row.target];
  return leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad;
}

}  // namespace

double ApartOf(const Comparison& c, uint32_t i) {
  if (!IsTensorPair(c, i)) return 0;
  const Leaf &t = c.target.leaves[c.rows[i].target], &g = c.golden.leaves[c.rows[i].golden];
  if (!t.has_stats || !g.has_stats) return 0;
  const auto relative = [](double difference, double size) {
    const double by = std::abs(difference) / size;
    return std::isfinite(by) ? by : 0;
  };
  const double size = std::max(std::abs(g.max_value), std::abs(g.min_value));
  return std::max({relative(t.norm_value - g.norm_value, g.norm_value),
                   relative(t.max_value - g.max_value, size),
                   relative(t.min_value - g.min_value, size)});
}

double CarriedBy(const Comparison& c, uint32_t i) {
  const Measure& m = c.measures[i];
  if (m.verdict != RowVerdict::kNoise || !std::isfinite(m.severity) || !IsTensorPair(c, i))
    return 0;
  const Leaf &t = c.target.leaves[c.rows[i].target], &g = c.golden.leaves[c.rows[i].golden];
  const double judged = std::max(m.severity, 1.0) * CoarserRounding(t.dtype, g.dtype).epsilon;
  const double apart = ApartOf(c, i);
  return apart > kCancelled * judged ? apart : 0;
}

bool IsCarriedOn(const Comparison& c, uint32_t i, double carried) {
  return carried > 0 && ApartOf(c, i) <= kCarried * carried;
}

bool OnlyCarriesOn(const Comparison& c, const RecordPair& pair) {
  const uint32_t end = pair.first_row + pair.row_count;
  double carried = 0;
  for (uint32_t i = pair.first_row; i < end; ++i) {
    if (!IsResult(c, i)) carried = std::max(carried, CarriedBy(c, i));
  }
  for (uint32_t i = pair.first_row; i < end; ++i) {
    if (c.measures[i].verdict != RowVerdict::kDiffers) continue;
    if (!IsResult(c, i) || !IsTensorPair(c, i) || !IsCarriedOn(c, i, carried)) return false;
  }
  return carried > 0;
}

}  // namespace msprobe::compare
