#include "engine/compare/explain/dataflow.h"

#include <algorithm>

#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

bool TellsTensorsApart(const Leaf& leaf) {
  if (leaf.kind != LeafKind::kTensor) return false;
  if (!leaf.fingerprint.empty() || !leaf.checksum.empty()) return true;
  return leaf.has_stats && leaf.max_value != leaf.min_value && leaf.norm_value != 0;
}

bool SameNumbers(const Leaf& a, const Leaf& b) {
  if (a.kind != LeafKind::kTensor || b.kind != LeafKind::kTensor || a.dtype != b.dtype)
    return false;
  if (!a.fingerprint.empty() && !b.fingerprint.empty()) return a.fingerprint == b.fingerprint;
  if (!a.checksum.empty() && !b.checksum.empty()) return a.checksum == b.checksum;
  return a.has_stats && b.has_stats && a.max == b.max && a.min == b.min && a.mean == b.mean &&
         a.norm == b.norm && a.shape.SameWithoutOnes(b.shape);
}

const Leaf* FindOutput(const Dump& dump, const Leaf& leaf, int32_t before) {
  if (!TellsTensorsApart(leaf)) return nullptr;
  PageRelease pages(dump);
  for (int32_t r = std::min(before, static_cast<int32_t>(dump.records.size())) - 1; r >= 0; --r) {
    pages.RowsDone(dump.records[r].leaf_count);
    for (const Leaf& out : dump.LeavesOf(dump.records[r])) {
      if (out.slot == Slot::kOutput && SameNumbers(out, leaf)) return &out;
    }
  }
  return nullptr;
}

int32_t FindProducer(const Dump& dump, const Leaf& leaf, int32_t before) {
  const Leaf* made = FindOutput(dump, leaf, before);
  return made == nullptr ? -1 : made->record;
}

}  // namespace msprobe::compare
