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
    if (!std::isnan(diff->relative_l2)) beside.error = std::max(beside.error, diff->relative_l2);
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

// By sketches of one length of rows, if both have them; else their moments decide.
Apart Relations::ApartOf(ValueId v, ValueId w, double terms) const {
  const Moments &a = t.values[v].moments, &b = g.values[w].moments;
  const double moments = Distance(a, b, terms);
  Apart apart{.in_order = moments, .rows = moments};
  if (std::isinf(moments)) return apart;
  if (const Beside* beside = BesideOf(v, w); beside != nullptr && beside->error >= 0) {
    const double size = std::max(b.Rms(), terms), own = b.Rms();
    apart.in_order = beside->other                   ? std::numeric_limits<double>::infinity()
                     : size > 0 && beside->error > 0 ? beside->error * own / size
                                                     : beside->error;
    apart.proven = true;
    return apart;
  }
  for (const RowSketch& mine : t.SketchesOf(v)) {
    for (const RowSketch& other : g.SketchesOf(w)) {
      if (mine.columns != other.columns || mine.rows != other.rows) continue;
      const double norm = std::max(b.Rms(), terms) * std::sqrt(static_cast<double>(b.n));
      const Apart by = DistanceOf(mine, other, norm);
      return {.in_order = std::max(moments, by.in_order),
              .rows = std::max(moments, by.rows),
              .proven = true};
    }
  }
  return apart;
}

}  // namespace msprobe::compare::relations
