#include "engine/compare/measure/dtype_arguments.h"

#include <algorithm>
#include <limits>

namespace msprobe::compare {
namespace {

// Whether a row has other dtypes: of a tensor, or as a plain value.
bool OtherDType(const Comparison& c, uint32_t i, LeafKind kind) {
  const Row& row = c.rows[i];
  if (row.target < 0 || row.golden < 0) return false;
  const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
  if (t.kind != kind || g.kind != kind) return false;
  return kind == LeafKind::kTensor ? t.dtype != g.dtype
                                   : c.measures[i].reason == Reason::kDTypeDiffers;
}

bool IsResult(const Comparison& c, uint32_t i) {
  return c.target.leaves[c.rows[i].target].slot == Slot::kOutput;
}

}  // namespace

void JudgeDTypeArguments(Comparison* c) {
  const auto& measures = c->measures;
  if (std::none_of(measures.begin(), measures.end(),
                   [](const Measure& m) { return m.reason == Reason::kDTypeDiffers; }))
    return;
  for (const RecordPair& pair : c->pairs) {
    const uint32_t end = pair.first_row + pair.row_count;
    bool inputs = false, results = false;
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (OtherDType(*c, i, LeafKind::kTensor)) (IsResult(*c, i) ? results : inputs) = true;
    }
    if (inputs) return;
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (!OtherDType(*c, i, LeafKind::kScalar) || IsResult(*c, i)) continue;
      c->measures[i].verdict = RowVerdict::kDiffers;
      c->measures[i].reason = Reason::kValueDiffers;
      c->measures[i].severity = std::numeric_limits<double>::infinity();
    }
    if (results) return;
  }
}

}  // namespace msprobe::compare
