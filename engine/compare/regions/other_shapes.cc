#include "engine/compare/regions/other_shapes.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/pair_rows.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {
namespace {

// How the rows of a paired call compare.
struct Rows {
  bool differ = false;
  bool other_shapes = false;  // tensors of other shapes
  bool other_values = false;  // tensors of equal shape that differ
  bool unjudged = false;      // a result of which nothing is known
};

Rows RowsOf(const Comparison& c, const PairRows& rows, size_t p) {
  Rows found;
  const bool optimizer = IsOptimizerCall(rows.RecordOf(p).api);
  rows.EachRow(p, [&](uint32_t i) {
    const Row& row = c.rows[i];
    const Measure& m = c.measures[i];
    if (row.target < 0 || row.golden < 0) {
      found.differ |= m.verdict == RowVerdict::kDiffers;
      return;
    }
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    const bool tensors = t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor;
    const bool equal_shape = tensors && t.shape.SameWithoutOnes(g.shape);
    found.unjudged |= equal_shape && IsTensorResult(t) && m.verdict == RowVerdict::kUnknown;
    if (m.verdict != RowVerdict::kDiffers) return;
    found.differ = true;
    found.other_shapes |= tensors && !equal_shape;
    // Weights and their gradients are no parts of each other: joined_weights.h compares them.
    const bool weight = optimizer || t.slot == Slot::kParameter || t.slot == Slot::kParameterGrad;
    found.other_values |= equal_shape || t.kind != g.kind || weight;
  });
  return found;
}

// Whether the call makes a value that is not known, and that agrees.
bool MakesNewValue(const Comparison& c, const ContentIds& content, const ContentSet& known,
                   const PairRows& rows, size_t p) {
  bool makes = false;
  rows.EachRow(p, [&](uint32_t i) {
    const RowVerdict verdict = c.measures[i].verdict;
    const bool agrees = verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise;
    if (!agrees || c.rows[i].target < 0) return;
    const Leaf& leaf = c.target.leaves[c.rows[i].target];
    const int32_t id = IsTensorResult(leaf) ? content.Of(true, leaf) : -1;
    makes |= id >= 0 && leaf.shape.elements() > 0 && !known.Has(id);
  });
  return makes;
}

}  // namespace

bool ForgiveOtherShapes(Comparison* c) {
  const PairRows rows(*c);
  std::vector<int32_t> differing;
  std::optional<Rows> last;
  size_t last_pair = 0;
  for (size_t p = 0; p < c->pairs.size(); ++p) {
    if (!c->pairs[p].matched() || c->IsRewritten(static_cast<int32_t>(p))) continue;
    const Rows found = RowsOf(*c, rows, p);
    if (found.differ && (!found.other_shapes || found.other_values)) return false;
    if (found.differ) differing.push_back(static_cast<int32_t>(p));
    last = found, last_pair = p;
  }
  if (differing.empty() || last->differ || last->unjudged) return false;
  const ContentIds& content = ContentOf(c);
  ContentSet known(content);
  for (int32_t p = 0; p < differing.front(); ++p) {
    rows.EachRow(p, [&](uint32_t i) {
      if (c->rows[i].target >= 0) known.Insert(content.Of(true, c->rows[i].target));
    });
  }
  if (!MakesNewValue(*c, content, known, rows, last_pair)) return false;
  if (c->rewritten.empty()) c->rewritten.assign(c->pairs.size(), 0);
  for (const int32_t p : differing) {
    c->rewritten[p] = Comparison::kRewrite;
    rows.EachRow(p, [&](uint32_t i) {
      Measure& m = c->measures[i];
      if (m.verdict != RowVerdict::kDiffers) return;
      m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kRewritten};
    });
  }
  for (size_t p = differing.front(); p < c->pairs.size(); ++p) {
    if (!c->pairs[p].matched()) c->rewritten[p] = Comparison::kRewrite;
  }
  return true;
}

}  // namespace msprobe::compare
