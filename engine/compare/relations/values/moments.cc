#include "engine/compare/relations/values/moments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace msprobe::compare::relations {

double Moments::Rms() const {
  return n > 0 && std::isfinite(norm) ? norm / std::sqrt(static_cast<double>(n)) : 0;
}

double Moments::Size() const { return std::max(std::abs(high), std::abs(low)); }

Moments MomentsOf(const Dump& dump, int32_t index) {
  const Leaf& leaf = dump.leaves[index];
  Moments m;
  const JoinedLeaf* joined = dump.JoinedOf(index);
  m.mean_only = joined != nullptr && joined->sum;
  if (leaf.kind != LeafKind::kTensor || !leaf.has_stats || (leaf.norm.empty() && !m.mean_only))
    return m;
  const ElementCounts& counts = *leaf.counts;
  m.n = std::max<int64_t>(leaf.shape.elements(), 0);
  m.not_finite = std::max<int64_t>(counts.nan, 0) + std::max<int64_t>(counts.pos_inf, 0) +
                 std::max<int64_t>(counts.neg_inf, 0);
  // A dump that writes no norm, or that does not count what made it NaN.
  m.known = leaf.shape.elements() >= 0 && (std::isfinite(leaf.norm_value) || m.not_finite > 0);
  m.zeros = std::max<int64_t>(counts.zero, -1);
  if (const LeafRest* rest = dump.RestOf(index); rest != nullptr && rest->extremes > 0) {
    m.extremes = rest->extremes;
    m.n = std::max<int64_t>(m.n - rest->extremes, 1);
    m.high = rest->max;
    m.low = rest->min;
    m.norm = rest->norm;
    return m;
  }
  m.high = leaf.max_value;
  m.low = leaf.min_value;
  m.mean = leaf.mean_value;
  m.norm = leaf.norm_value;
  return m;
}

Moments Join(std::span<const Moments> parts) {
  Moments all;
  double squares = 0, sum = 0;
  for (const Moments& part : parts) {
    if (part.n == 0) continue;
    const bool first = all.n == 0;
    all.high = first ? part.high : std::max(all.high, part.high);
    all.low = first ? part.low : std::min(all.low, part.low);
    all.n += part.n;
    sum += part.mean * static_cast<double>(part.n);
    squares += part.norm * part.norm;
    all.not_finite += part.not_finite;
    all.zeros = all.zeros < 0 || part.zeros < 0 ? -1 : all.zeros + part.zeros;
    all.extremes += part.extremes;
    all.mean_only |= part.mean_only;
  }
  all.known = true;
  all.mean = all.n > 0 ? sum / static_cast<double>(all.n) : 0;
  all.norm = std::sqrt(squares);
  return all;
}

Moments Times(double factor, Moments m) {
  m.high *= factor;
  m.low *= factor;
  if (factor < 0) std::swap(m.high, m.low);
  m.mean *= factor;
  m.norm *= std::abs(factor);
  return m;
}

double Distance(const Moments& a, const Moments& b, double terms) {
  if (!a.known || !b.known || a.n != b.n || a.not_finite != b.not_finite ||
      a.extremes != b.extremes)
    return kInfinity;
  if (a.not_finite > 0) return 0;  // what NaN leaves of the statistics says nothing of the elements
  const double size = std::max(b.Size(), terms), rms = std::max(b.Rms(), terms);
  if (size == 0 || rms == 0) return a.Size() == 0 ? 0 : kInfinity;
  const double ends = std::max(std::abs(a.high - b.high), std::abs(a.low - b.low)) / size;
  const double mean = std::abs(a.mean - b.mean) / rms;
  const double norm = std::abs(a.norm - b.norm) / (rms * std::sqrt(static_cast<double>(b.n)));
  const double distance = a.mean_only || b.mean_only ? mean : std::max({ends, mean, norm});
  return std::isnan(distance) ? kInfinity : distance;
}

bool SameElements(const Moments& a, const Moments& b) {
  if (!a.known || !b.known || a.mean_only || b.mean_only) return false;
  return a.n == b.n && a.high == b.high && a.low == b.low &&
         (a.zeros == b.zeros || a.zeros < 0 || b.zeros < 0) && a.not_finite == b.not_finite &&
         a.extremes == b.extremes && std::abs(a.norm - b.norm) <= kDigits * b.norm &&
         std::abs(a.mean - b.mean) <= kDigits * std::max(b.Rms(), std::abs(b.mean));
}

uint64_t ElementsKey(const Moments& m) {
  const auto bits = [](double x) {
    const float f = static_cast<float>(x) + 0.0F;
    uint32_t u = 0;
    std::memcpy(&u, &f, sizeof u);
    return static_cast<uint64_t>(u);
  };
  return MixKeys(MixKeys(static_cast<uint64_t>(m.n), bits(m.high)), bits(m.low));
}

}  // namespace msprobe::compare::relations
