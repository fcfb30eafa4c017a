#include "engine/compare/repeat_spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/compare/align/align.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/measure/measure.h"

namespace msprobe::compare {
namespace {

constexpr float kNotKnown = -1;

// The largest difference of each golden leaf from its partners in the repeats; kNotKnown: none.
struct LeafSpreads {
  std::vector<float> of;
  int64_t without_partner = 0;  // leaves of the golden, summed over the repeats
};

float SpreadOf(const compare::Measure& m) {
  switch (m.verdict) {
    case RowVerdict::kEqual:
      return 0;
    case RowVerdict::kUnknown:
      return kNotKnown;
    case RowVerdict::kNoise:
    case RowVerdict::kDiffers:
      break;
  }
  // Other bits with equal statistics: the difference is less than one rounding of a statistic.
  if (m.severity == 0) return 1;
  return std::isnan(m.severity) ? kNotKnown : static_cast<float>(m.severity);
}

// `golden` is the comparison's own, which is given back.
void AddRepeat(const CompareOptions& options, Dump repeat, Comparison* c, LeafSpreads* spreads) {
  Comparison one;
  one.mode = c->mode;
  one.tolerance = c->tolerance;
  one.thresholds = c->thresholds;
  one.target = std::move(repeat);
  one.golden = std::move(c->golden);
  CompareOptions plain = options;
  plain.mapping = {};  // the repeats have the golden's names
  plain.progress = {};
  AlignedDumps aligned = AlignDumps(one.target, one.golden, plain);
  one.pairs = std::move(aligned.pairs);
  one.rows = std::move(aligned.rows);
  one.forward_of = std::move(aligned.forward_of);
  MeasureRows(plain, &one);
  for (size_t i = 0; i < one.rows.size(); ++i) {
    const Row& row = one.rows[i];
    if (row.golden < 0) continue;
    float& spread = spreads->of[row.golden];
    if (row.target < 0) {
      ++spreads->without_partner;
      continue;
    }
    spread = std::max(spread, SpreadOf(one.measures[i]));
  }
  c->golden = std::move(one.golden);
}

}  // namespace

RepeatSpread RepeatSpread::Measure(const CompareOptions& options, std::deque<Dump> repeats,
                                   Comparison* c) {
  RepeatSpread spread;
  if (repeats.empty()) return spread;
  LeafSpreads leaves{.of = std::vector<float>(c->golden.leaves.size(), kNotKnown)};
  for (Dump& repeat : repeats) AddRepeat(options, std::move(repeat), c, &leaves);
  spread.repeats_ = static_cast<int>(repeats.size());
  spread.spreads_.assign(c->rows.size(), kNotKnown);
  for (size_t i = 0; i < c->rows.size(); ++i) {
    if (c->rows[i].golden >= 0) spread.spreads_[i] = leaves.of[c->rows[i].golden];
  }
  if (leaves.without_partner > 0) {
    c->not_observed.push_back(
        leaves.without_partner == 1
            ? "1 value of the golden has no partner in a repeat of another structure: rounding "
              "alone says what is noise there"_t
            : "{} values of the golden have no partner in a repeat of another structure: rounding "
              "alone says what is noise there"_t(leaves.without_partner));
  }
  return spread;
}

void RepeatSpread::Judge(Comparison* c) const {
  if (!empty()) c->by_repeats.assign(c->rows.size(), RowVerdict::kUnknown);
  for (size_t i = 0; i < spreads_.size(); ++i) {
    compare::Measure& m = c->measures[i];
    const bool open = m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
    if (!open || spreads_[i] < 0 || c->rows[i].target < 0) continue;
    if (spreads_[i] == 0) {
      const Leaf& target = c->target.leaves[c->rows[i].target];
      const Leaf& golden = c->golden.leaves[c->rows[i].golden];
      if (target.dtype == golden.dtype) c->by_repeats[i] = m.verdict = RowVerdict::kDiffers;
      continue;
    }
    // Kinds, shapes, texts: no number says how far they are apart.
    if (std::isnan(m.severity)) continue;
    c->by_repeats[i] = m.verdict =
        m.severity <= kSpreadFactor * spreads_[i] ? RowVerdict::kNoise : RowVerdict::kDiffers;
  }
}

Message RepeatSpread::Sentence(const Comparison& c, int32_t row) const {
  if (row < 0 || spreads_.empty() || spreads_[row] < 0) return {};
  if (spreads_[row] == 0) {
    return repeats_ == 1 ? "1 repeat of the golden has the same bits"_t
                         : "{} repeats of the golden have the same bits"_t(repeats_);
  }
  const double severity = c.measures[row].severity;
  if (std::isnan(severity)) return {};
  return "it is off by {} times the spread of {}"_t(
      ShortNumber(severity / spreads_[row]),
      repeats_ == 1 ? "1 repeat"_t : "{} repeats"_t(repeats_));
}

}  // namespace msprobe::compare
