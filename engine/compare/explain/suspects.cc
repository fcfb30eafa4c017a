#include "engine/compare/explain/suspects.h"

#include <algorithm>
#include <cmath>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// How many pairs before the first wrong call are near.
constexpr int kNeighbourhood = 16;

// Whether the call `q` ran in a module call before `p` whose results agree.
bool IsInsideAnAgreeingModule(const Comparison& c, int32_t q, int32_t p) {
  const bool in_target = c.pairs[q].target >= 0;
  std::string_view at = RecordOf(c, q).parent;
  for (int32_t r = q + 1; r < p && !at.empty(); ++r) {
    const int32_t record = in_target ? c.pairs[r].target : c.pairs[r].golden;
    if (record < 0) continue;
    const Record& module = (in_target ? c.target : c.golden).records[record];
    if (module.name != at) continue;
    if (c.pairs[r].matched())
      return c.classes[r] == CallClass::kEqual || c.classes[r] == CallClass::kNoise;
    at = module.parent;
  }
  return false;
}

// Whether a call returns a tensor of other numbers than those that it takes.
bool ChangesNumbers(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  const Dump& dump = pair.target >= 0 ? c.target : c.golden;
  const auto leaves = dump.LeavesOf(RecordOf(c, p));
  return std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& out) {
    return out.kind == LeafKind::kTensor && out.slot == Slot::kOutput &&
           std::none_of(leaves.begin(), leaves.end(), [&](const Leaf& in) {
             return in.slot != Slot::kOutput && in.kind == LeafKind::kTensor && in.has_stats &&
                    ContentKey(in) == ContentKey(out);
           });
  });
}

// Whether the call `taker` takes a tensor that the call `maker` returned.
bool Takes(const Dump& dump, const Record& taker, const Record& maker) {
  const auto made = dump.LeavesOf(maker), taken = dump.LeavesOf(taker);
  return std::any_of(made.begin(), made.end(), [&](const Leaf& out) {
    const uint64_t key =
        out.kind == LeafKind::kTensor && out.slot == Slot::kOutput ? ContentKey(out) : 0;
    return key != 0 && std::any_of(taken.begin(), taken.end(), [&](const Leaf& in) {
             return in.kind == LeafKind::kTensor && in.slot != Slot::kOutput &&
                    ContentKey(in) == key;
           });
  });
}

// The last backward call that only one run has and whose forward call takes a result of the forward
// call `maker`; -1: there is none.
int32_t UnmatchedUse(const Comparison& c, int32_t maker, bool target) {
  const Dump& dump = target ? c.target : c.golden;
  const auto record_of = [&](int32_t p) { return target ? c.pairs[p].target : c.pairs[p].golden; };
  int32_t last = -1;
  if (record_of(maker) < 0) return last;
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (c.pairs[p].matched() || record_of(p) < 0 || c.IsRewritten(p)) continue;
    const int32_t forward = c.forward_of[p];
    if (RecordOf(c, p).direction != Direction::kBackward || forward <= maker) continue;
    if (last >= 0 && forward <= c.forward_of[last]) continue;
    if (Takes(dump, dump.records[record_of(forward)], dump.records[record_of(maker)])) last = p;
  }
  return last;
}

// Whether the call `p`, which stands behind `q` in the target, stands before it in the golden. `q`
// is a call of the target only; the paired call before it tells its place in the golden.
bool IsMovedOver(const Comparison& c, int32_t p, int32_t q) {
  if (!c.pairs[p].matched() || c.pairs[q].target < 0) return false;
  while (q >= 0 && !c.pairs[q].matched()) --q;
  return q >= 0 && c.pairs[q].golden > c.pairs[p].golden;
}

}  // namespace

int32_t UnmatchedMakerOf(const Comparison& c, int32_t p, const Leaf& target, const Leaf& golden) {
  PageRelease pages(c.target, c.golden);
  for (int32_t q = p - 1; q >= 0; --q) {
    if (c.pairs[q].matched() || c.IsRewritten(q)) continue;
    pages.RowsDone(c.pairs[q].row_count);
    const bool in_target = c.pairs[q].target >= 0;
    const Dump& dump = in_target ? c.target : c.golden;
    for (const Leaf& leaf : dump.LeavesOf(RecordOf(c, q))) {
      if (leaf.slot == Slot::kOutput && SameNumbers(leaf, in_target ? target : golden))
        return IsMovedOver(c, p, q) ? -1 : q;
    }
  }
  return -1;
}

int32_t UnmatchedNear(const Comparison& c, int32_t p) {
  // A forward call behind a backward call is in the backward pass too: code of autograd.Function.
  const auto in_pass_of_p = [&](int32_t q) {
    const Direction direction = RecordOf(c, q).direction;
    return direction == RecordOf(c, p).direction || direction == Direction::kBackward;
  };
  const bool frameworks = OfTwoFrameworks(c.target, c.golden);
  for (int32_t q = p - 1; q >= 0 && q >= p - kNeighbourhood; --q) {
    if (c.pairs[q].matched() || c.IsRewritten(q) || !in_pass_of_p(q) ||
        IsInsideAnAgreeingModule(c, q, p))
      continue;
    // One framework reads shapes and casts where the other does not.
    if (!frameworks || ChangesNumbers(c, q)) return q;
  }
  return -1;
}

int32_t UnmatchedTerm(const Comparison& c, int32_t p) {
  if (c.forward_of.empty() || RecordOf(c, p).direction != Direction::kBackward) return -1;
  for (const bool target : {true, false}) {
    int32_t term = -1;
    for (int32_t maker = c.forward_of[p]; maker >= 0; maker = c.forward_of[term]) {
      const int32_t use = UnmatchedUse(c, maker, target);  // behind `maker`: this ends
      if (use < 0) break;
      term = use;
    }
    if (term < 0) continue;
    const int32_t forward = c.forward_of[term];
    return c.pairs[forward].matched() ? term : forward;
  }
  return -1;
}

int32_t EnclosingIntroducer(const Comparison& c, int32_t p) {
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  std::string_view at = RecordOf(c, p).parent;
  for (int32_t q = p + 1, depth = 0; q < size && depth < 64 && !at.empty(); ++q) {
    if (RecordOf(c, q).name != at) continue;
    if (c.classes[q] == CallClass::kIntroduced) return q;
    at = RecordOf(c, q).parent;
    ++depth;
  }
  return -1;
}

int32_t FirstWrongInput(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& r = c.rows[i];
    if (r.target < 0 || r.golden < 0) continue;
    const Leaf& leaf = c.target.leaves[r.target];
    const bool goes_in =
        leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
    const int32_t at = static_cast<int32_t>(i);
    if (goes_in && !IsPlain(c, at) && c.measures[i].verdict == RowVerdict::kDiffers) return at;
  }
  return -1;
}

int32_t CallAround(const Comparison& c, int32_t p) {
  const Record& inside = RecordOf(c, p);
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  for (int32_t q = p + 1; q < size && !inside.parent.empty(); ++q) {
    const Record& around = RecordOf(c, q);
    if (around.name == inside.parent)
      return c.pairs[q].matched() && around.direction == inside.direction ? q : -1;
  }
  return -1;
}

int32_t OutermostWithWrongInput(const Comparison& c, int32_t p) {
  for (int32_t around = CallAround(c, p); around >= 0; around = CallAround(c, around)) {
    if (FirstWrongInput(c, around) < 0) return p;
    p = around;
  }
  return p;
}

}  // namespace msprobe::compare
