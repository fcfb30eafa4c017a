#include "engine/compare/measure/uncounted_values.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// Whether `place` is the value `name` or an element of it: "0", "0.3".
bool IsValue(std::string_view place, std::string_view name) {
  return place.starts_with(name) && (place.size() == name.size() || place[name.size()] == '.');
}

bool IsDestination(const OperationTable& operations, const Record& record, const Leaf& leaf) {
  if (leaf.kind != LeafKind::kTensor) return false;
  const std::string_view place = LeafPlace(leaf, record);
  if (leaf.slot == Slot::kInput)
    return WritesFirstArgument(operations, record.api) && IsValue(place, "0");
  return leaf.slot == Slot::kKwarg && IsValue(place, "out");
}

bool IsNoneOnOneSide(const Comparison& c, const Row& row) {
  if (row.target < 0 || row.golden < 0) return false;
  const LeafKind target = c.target.leaves[row.target].kind,
                 golden = c.golden.leaves[row.golden].kind;
  return (target == LeafKind::kNone && golden == LeafKind::kTensor) ||
         (target == LeafKind::kTensor && golden == LeafKind::kNone);
}

// Whether the row is a tensor of another kind or shape, or None on one side.
bool HasOtherForm(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  if (row.target < 0 || row.golden < 0) return false;
  if (IsNoneOnOneSide(c, row)) return true;
  const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
  const Reason reason = c.measures[i].reason;
  const bool goes_in = target.slot == Slot::kInput || target.slot == Slot::kKwarg;
  return goes_in && target.kind == LeafKind::kTensor && golden.kind == LeafKind::kTensor &&
         (reason == Reason::kKindDiffers || reason == Reason::kShapeDiffers);
}

bool IsFlag(const Comparison& c, const Row& row) {
  return row.target >= 0 && row.golden >= 0 && c.target.leaves[row.target].type == "bool" &&
         c.golden.leaves[row.golden].type == "bool";
}

// Whether there is a result and all of them agree. `x[index] = y` returns nothing; what a call
// leaves in its arguments is no result here.
bool ResultsAgree(const Comparison& c, const RecordPair& pair) {
  bool any = c.golden.records[pair.golden].api.ends_with(".__setitem__");
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
    if (leaf.slot != Slot::kOutput || leaf.kind != LeafKind::kTensor || IsNoneOnOneSide(c, row))
      continue;
    const Dump& dump = row.target >= 0 ? c.target : c.golden;
    if (IsChangedInPlace(leaf, dump.records[leaf.record])) continue;
    const RowVerdict verdict = c.measures[i].verdict;
    if (verdict != RowVerdict::kEqual && verdict != RowVerdict::kNoise) return false;
    any = true;
  }
  return any;
}

// x of `x[index] = y` behind the call, where x differed before: what differs is what y left
// standing.
void ForgiveRestOfOverwritten(const RecordPair& pair, Comparison* c) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c->rows[i];
    Measure& m = c->measures[i];
    if (m.verdict == RowVerdict::kEqual || row.target < 0 || row.golden < 0 ||
        !IsChangedInPlace(c->golden.leaves[row.golden], c->golden.records[pair.golden]))
      continue;
    m.verdict = RowVerdict::kUnknown;
    m.reason = Reason::kOverwritten;
  }
}

bool RecordsChanges(const Dump& dump) {
  return std::any_of(dump.leaves.begin(), dump.leaves.end(), [&](const Leaf& leaf) {
    return IsChangedInPlace(leaf, dump.records[leaf.record]);
  });
}

}  // namespace

void ForgiveUnrecordedChanges(Comparison* c) {
  int only_one = -1;  // whether one dump alone has such rows: not known yet
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      if (row.target >= 0 && row.golden >= 0) continue;
      const Dump& dump = row.target >= 0 ? c->target : c->golden;
      const Leaf& leaf = dump.leaves[row.target >= 0 ? row.target : row.golden];
      if (!IsChangedInPlace(leaf, dump.records[leaf.record])) continue;
      if (only_one < 0) only_one = RecordsChanges(c->target) != RecordsChanges(c->golden);
      if (only_one == 0) return;
      c->measures[i].reason = Reason::kOneRecorded;
    }
  }
}

void ForgiveOverwritten(Comparison* c) {
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    const Record& record = c->golden.records[pair.golden];
    if (record.direction != Direction::kForward || record.is_module) continue;
    bool forgiven = false;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      Measure& m = c->measures[i];
      const bool agrees = m.verdict == RowVerdict::kEqual || m.verdict == RowVerdict::kNoise;
      if (agrees || row.target < 0 || row.golden < 0 ||
          !IsDestination(OperationsOf(*c), record, c->golden.leaves[row.golden]))
        continue;
      if (!ResultsAgree(*c, pair)) break;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kOverwritten;
      forgiven = true;
    }
    if (forgiven) ForgiveRestOfOverwritten(pair, c);
  }
}

namespace {

// Whether the order of the elements that the call returns follows from the shapes alone.
bool OrderFollowsFromShapes(std::string_view api) {
  constexpr std::string_view kSuch[] = {"reshape", "view",      "view_as",   "flatten",
                                        "squeeze", "expand",    "expand_as", "reshape_as",
                                        "ravel",   "unflatten", "unsqueeze"};
  return std::find(std::begin(kSuch), std::end(kSuch), BaseApi(api)) != std::end(kSuch);
}

// Whether both runs have the same tensors, by their shapes, as results, and of equally many
// elements as arguments. Such a call computes the same whether a size is given or is -1.
bool HasSameShapes(const Comparison& c, const RecordPair& pair) {
  bool any = false;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf* t = row.target < 0 ? nullptr : &c.target.leaves[row.target];
    const Leaf* g = row.golden < 0 ? nullptr : &c.golden.leaves[row.golden];
    const auto is_tensor = [](const Leaf* leaf) {
      return leaf != nullptr && leaf->kind == LeafKind::kTensor;
    };
    if (!is_tensor(t) && !is_tensor(g)) continue;
    if (!is_tensor(t) || !is_tensor(g) || !t->shape.known()) return false;
    const bool result = t->slot == Slot::kOutput;
    if (result ? !(t->shape == g->shape) : t->shape.elements() != g->shape.elements()) return false;
    any |= result;
  }
  return any;
}

// The number of dimensions of the first tensor that the call takes; 0: there is none.
int DimensionsOf(const Dump& dump, const Record& record) {
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind == LeafKind::kTensor && leaf.slot != Slot::kOutput)
      return static_cast<int>(leaf.shape.extents().size());
  }
  return 0;
}

// Whether the row is a dimension that is counted from the front in one run and from the back in the
// other: 3 and -1 of four.
bool IsOneDimension(const Comparison& c, const Row& row, int dimensions) {
  if (dimensions == 0 || row.target < 0 || row.golden < 0) return false;
  const auto number = [](const Leaf& leaf) -> std::optional<int64_t> {
    const std::string_view text = leaf.value.view();
    int64_t found = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return leaf.kind == LeafKind::kScalar && leaf.type == "int" && whole ? std::optional(found)
                                                                         : std::nullopt;
  };
  const std::optional<int64_t> t = number(c.target.leaves[row.target]),
                               g = number(c.golden.leaves[row.golden]);
  // Compared without a difference, which might not fit.
  return t && g &&
         ((*t < 0 && *g >= 0 && *g - dimensions == *t) ||
          (*g < 0 && *t >= 0 && *t - dimensions == *g));
}

}  // namespace

void ForgiveEqualArguments(Comparison* c) {
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    const Record& record = c->golden.records[pair.golden];
    if (record.direction != Direction::kForward || record.is_module) continue;
    std::optional<bool> by_shapes;  // not known yet
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      Measure& m = c->measures[i];
      if (m.verdict != RowVerdict::kDiffers || m.reason != Reason::kValueDiffers ||
          c->golden.leaves[c->rows[i].golden].slot == Slot::kOutput)
        continue;
      if (!by_shapes) by_shapes = OrderFollowsFromShapes(record.api) && HasSameShapes(*c, pair);
      if (!*by_shapes && !(IsOneDimension(*c, c->rows[i], DimensionsOf(c->golden, record)) &&
                           ResultsAgree(*c, pair)))
        continue;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kOtherForm;
    }
  }
}

void ForgiveImplementations(Comparison* c) {
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched() || !IsOptimizerCall(c->golden.records[pair.golden].api)) continue;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      const Dump& dump = row.target >= 0 ? c->target : c->golden;
      const Leaf& leaf = dump.leaves[row.target >= 0 ? row.target : row.golden];
      Measure& m = c->measures[i];
      if (m.verdict == RowVerdict::kEqual || !IsImplementation(dump.records[leaf.record], leaf))
        continue;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kOtherForm;
    }
  }
}

void ForgiveOtherForms(Comparison* c) {
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched() || c->golden.records[pair.golden].direction != Direction::kForward)
      continue;
    const uint32_t end = pair.first_row + pair.row_count;
    bool any = false;
    for (uint32_t i = pair.first_row; i < end; ++i) any = any || HasOtherForm(*c, i);
    if (!any || !ResultsAgree(*c, pair)) continue;
    for (uint32_t i = pair.first_row; i < end; ++i) {
      Measure& m = c->measures[i];
      if (m.verdict == RowVerdict::kEqual || m.verdict == RowVerdict::kNoise) continue;
      if (!HasOtherForm(*c, i) && !IsFlag(*c, c->rows[i])) continue;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kOtherForm;
    }
  }
}

void ForgiveOtherFramework(Comparison* c) {
  if (!OfTwoFrameworks(c->target, c->golden)) return;
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    const bool agree = ResultsAgree(*c, pair);
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      Measure& m = c->measures[i];
      if (row.target < 0 || row.golden < 0 || m.reason == Reason::kNoCommonNumber) {
        if (m.verdict == RowVerdict::kUnknown) m.reason = Reason::kOneFramework;
        continue;
      }
      // Of an input without a gradient one framework computes it all the same.
      const bool backward = c->golden.records[pair.golden].direction == Direction::kBackward;
      if (backward && IsNoneOnOneSide(*c, row)) {
        m.verdict = RowVerdict::kUnknown;
        m.reason = Reason::kOneFramework;
        m.severity = kernels::Diff::kNaN;
        continue;
      }
      const bool plain = c->target.leaves[row.target].kind != LeafKind::kTensor ||
                         c->golden.leaves[row.golden].kind != LeafKind::kTensor;
      if (!plain || !agree || m.verdict == RowVerdict::kEqual || m.verdict == RowVerdict::kNoise)
        continue;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kOtherForm;
      m.severity = kernels::Diff::kNaN;
    }
  }
}

}  // namespace msprobe::compare
