#include "engine/compare/judge/shape_effects.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// Whether the row is one tensor with other dimensions of extent 1, and agrees for that.
bool HasOtherOnes(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  const RowVerdict verdict = c.measures[i].verdict;
  if (row.target < 0 || row.golden < 0) return false;
  if (verdict != RowVerdict::kEqual && verdict != RowVerdict::kNoise) return false;
  const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
  return t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor && t.shape.known() &&
         g.shape.known() && t.shape.elements() > 1 && !(t.shape == g.shape) &&
         t.shape.SameWithoutOnes(g.shape);
}

// What the rows of a pair say, as far as shapes may be the reason.
struct Call {
  bool results_differ = false;
  bool takes_other = false;                  // a tensor or a plain argument differs
  std::vector<uint32_t> arguments, results;  // rows of HasOtherOnes
};

class Judge {
 public:
  explicit Judge(Comparison* c) : c_(*c), content_(ContentOf(c)), has_effect_(content_) {}

  // Backwards: what takes a value is seen before what made it.
  void Run() {
    for (size_t p = c_.pairs.size(); p-- > 0;) {
      if (!c_.pairs[p].matched()) continue;
      if (c_.target.records[c_.pairs[p].target].direction != Direction::kForward) continue;
      const Call call = Look(c_.pairs[p]);
      bool effect = call.results_differ && !call.takes_other;
      for (const uint32_t i : call.results) {
        if (!has_effect_.Has(content_.Of(true, c_.rows[i].target))) continue;
        effect = true;
        Settle(i);
      }
      if (!effect) continue;
      for (const uint32_t i : call.arguments) {
        has_effect_.Insert(content_.Of(true, c_.rows[i].target));
        Settle(i);
      }
    }
  }

 private:
  Call Look(const RecordPair& pair) const {
    Call call;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c_.rows[i];
      const Leaf& leaf =
          row.target >= 0 ? c_.target.leaves[row.target] : c_.golden.leaves[row.golden];
      const bool result = leaf.slot == Slot::kOutput;
      const bool differs = c_.measures[i].verdict == RowVerdict::kDiffers;
      (result ? call.results_differ : call.takes_other) |= differs && !(result && IsArranged(i));
      if (HasOtherOnes(c_, i)) (result ? call.results : call.arguments).push_back(i);
    }
    return call;
  }

  // Whether the results have equally many elements in other shapes: the call was told to give them
  // these shapes (reshape).
  bool IsArranged(uint32_t i) const {
    const Row& row = c_.rows[i];
    return c_.measures[i].reason == Reason::kShapeDiffers && row.target >= 0 && row.golden >= 0 &&
           c_.target.leaves[row.target].shape.elements() ==
               c_.golden.leaves[row.golden].shape.elements();
  }

  void Settle(uint32_t i) {
    Measure& m = c_.measures[i];
    m.verdict = RowVerdict::kDiffers;
    m.reason = Reason::kShapeDiffers;
    m.severity = std::numeric_limits<double>::infinity();
  }

  Comparison& c_;
  const ContentIds& content_;
  ContentSet has_effect_;  // contents of the target that are taken where their shape has an effect
};

}  // namespace

void JudgeShapeEffects(Comparison* c) {
  // Two frameworks have other shapes at many places, by the way in which each of them computes.
  if (OfTwoFrameworks(c->target, c->golden)) return;
  // Most pairs of runs have no such row: then contents need not be numbered.
  for (uint32_t i = 0; i < c->rows.size(); ++i) {
    if (HasOtherOnes(*c, i)) return Judge(c).Run();
  }
}

}  // namespace msprobe::compare
