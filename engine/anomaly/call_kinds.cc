#include "engine/anomaly/call_kinds.h"

#include <cmath>
#include <string_view>

#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::anomaly {
namespace {

std::string_view FunctionOf(const Record& record) {
  const std::string_view api = record.api;
  return api.substr(api.rfind('.') + 1);
}

// Most values are finite: found out without more work.
bool MayBeNonfinite(const Leaf& leaf) {
  if (leaf.kind == LeafKind::kNone) return false;
  return leaf.counts->nan > 0 || leaf.counts->pos_inf > 0 || leaf.counts->neg_inf > 0 ||
         !std::isfinite(leaf.max_value) || !std::isfinite(leaf.min_value);
}

bool IsOverwritten(const Record& record, const Leaf& leaf) {
  return leaf.slot == Slot::kInput && WritesWholeTensor(FunctionOf(record)) &&
         compare::LeafPlace(leaf, record) == "0";
}

}  // namespace

bool IsUnwritten(const Dump& dump, const Leaf& leaf) {
  return !dump.unwritten.empty() &&
         !dump.AllocationOf(static_cast<int32_t>(&leaf - dump.leaves.data())).empty();
}

CallKinds KindsOfCall(const Dump& dump, const Record& record) {
  CallKinds call;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (!MayBeNonfinite(leaf)) continue;
    const ValueKinds kinds = KindsOf(leaf);
    if (!kinds.any()) continue;
    const bool unwritten = IsUnwritten(dump, leaf);
    if (leaf.slot == Slot::kOutput) {
      if (!unwritten) call.made.Add(kinds);
    } else if (leaf.slot == Slot::kParameterGrad || leaf.slot == Slot::kDebug) {
      call.passing.Add(kinds);
    } else if (unwritten || IsOverwritten(record, leaf)) {
      call.reads_unwritten |= unwritten;
    } else {
      call.given.Add(kinds);
      if (leaf.kind == LeafKind::kTensor) call.given_tensors.Add(kinds);
    }
  }
  return call;
}

bool NeverAnAnomaly(const Record& record) {
  const std::string_view function = FunctionOf(record);
  return ReturnsUnwrittenMemory(function) || function == "masked_fill_" ||
         record.api.view().starts_with("Torch.fill");
}

}  // namespace msprobe::anomaly
