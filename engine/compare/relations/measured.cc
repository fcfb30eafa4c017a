// How far a value of the target is from one of the golden: by their elements, where a row of the
// comparison measured them; else by sketches; else by moments.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

// What was measured of rows: their elements, and how far repeats of the golden are from it.
void Relations::FindBeside() {
  if (c.diffs.empty() && c.by_repeats.empty()) return;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const ValueId v = t.ValueOfLeaf(row.target), w = g.ValueOfLeaf(row.golden);
    const kernels::Diff* diff = c.DiffOf(i);
    const RowVerdict noise = c.by_repeats.empty() ? RowVerdict::kUnknown : c.by_repeats[i];
    if (v == kNoId || w == kNoId || (diff == nullptr && noise == RowVerdict::kUnknown)) continue;
    Beside& beside = beside_[static_cast<uint64_t>(v) << 32 | static_cast<uint32_t>(w)];
    if (noise != RowVerdict::kUnknown) beside.by_repeats = noise;
    if (diff == nullptr) continue;
    beside.other |= diff->nonfinite_mismatch > 0;
    if (!std::isnan(diff->euclidean)) beside.error = std::max(beside.error, diff->euclidean);
  }
}

// Where a dump has no digests, equal statistics are one content: elements that were compared know better.
bool Relations::SameBits(ValueId v, ValueId w) const {
  const int32_t content = t.values[v].content;
  if (content == kNoId || content != g.values[w].content) return false;
  const Beside* beside = BesideOf(v, w);
  return beside == nullptr || (beside->error <= 0 && !beside->other);
}

const Relations::Beside* Relations::BesideOf(ValueId v, ValueId w) const {
  const auto found = beside_.find(static_cast<uint64_t>(v) << 32 | static_cast<uint32_t>(w));
  return found == beside_.end() ? nullptr : &found->second;
}

// Of the rows in any order sketches of one length of rows tell, if both have them; else their moments.
// Of the elements as they stand: the elements themselves, where they were compared.
Apart Relations::ApartOf(ValueId v, ValueId w, double terms) const {
  const Moments &a = t.values[v].moments, &b = g.values[w].moments;
  const double moments = Distance(a, b, terms), size = std::max(b.Rms(), terms);
  if (std::isinf(moments)) return {.in_order = moments, .rows = moments};
  Apart apart = BySketches(v, w, size).value_or(Apart{});
  apart.in_order = std::max(moments, apart.in_order);
  apart.rows = std::max(moments, apart.rows);
  const Beside* beside = BesideOf(v, w);
  if (beside == nullptr || (beside->error < 0 && !beside->other)) return apart;
  // Relative to the size without extremes: a mask of -1e38 must not hide what is beside it.
  const double norm = size * std::sqrt(static_cast<double>(b.n));
  apart.in_order = beside->other        ? std::numeric_limits<double>::infinity()
                   : beside->error == 0 ? 0
                                        : beside->error / norm;
  apart.compared = true;
  return apart;
}

// Of v from `factor` times w.
std::optional<Apart> Relations::BySketches(ValueId v, ValueId w, double size, double factor) const {
  for (const RowSketch& mine : t.SketchesOf(v)) {
    for (const RowSketch& other : g.SketchesOf(w)) {
      if (mine.columns != other.columns || mine.rows != other.rows) continue;
      return DistanceOf(mine, Times(factor, other),
                        size * std::sqrt(static_cast<double>(g.values[w].moments.n)));
    }
  }
  return std::nullopt;
}

// The number by which w must be multiplied to be v, within the bound; 0: there is none, or it is 1.
double Relations::FactorOf(ValueId v, ValueId w, double bound) const {
  const Moments &a = t.values[v].moments, &b = g.values[w].moments;
  const bool plain = t.values[v].plain && g.values[w].plain && a.high == a.low && b.high == b.low;
  if (!t.values[v].IsFloat() || !g.values[w].IsFloat() || !a.known || !b.known || a.n != b.n ||
      (a.n < kFewestScaled && !plain) || a.not_finite > 0 || b.not_finite > 0 || a.norm == 0 ||
      b.norm == 0 || !std::isfinite(a.norm / b.norm))
    return 0;
  const double near = std::max(bound, kOwnRoundings * t.values[v].roundoff), terms = Terms(v);
  for (const double factor : {a.norm / b.norm, -a.norm / b.norm}) {
    if (std::abs(factor - 1) <= kSurely * near) continue;
    const Moments scaled = Times(factor, b);
    if (!(Distance(a, scaled, terms) <= near)) continue;
    const std::optional<Apart> apart = BySketches(v, w, std::max(scaled.Rms(), terms), factor);
    if (!apart || apart->in_order <= near) return factor;
  }
  return 0;
}

}  // namespace msprobe::compare::relations
