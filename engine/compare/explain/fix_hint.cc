#include "engine/compare/explain/fix_hint.h"

#include <fmt/format.h>

#include <utility>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/regions.h"

namespace msprobe::compare {
namespace {

using Change = FixHint::Change;

// "0.001", or "a tensor of torch.float32" where one side only passes a number; "" without a leaf.
Message Plain(const Dump& dump, int32_t index) {
  if (index < 0) return {};
  const Leaf& leaf = dump.leaves[index];
  if (leaf.kind == LeafKind::kTensor) return "a tensor of {}"_t(leaf.dtype.view());
  return leaf.kind == LeafKind::kNone ? std::string("None") : PlainValue(leaf);
}

std::vector<Change> Arguments(const Comparison& c, int32_t p) {
  std::vector<Change> changes;
  for (HyperParameter& h : DifferingHyperParameters(c, p))
    changes.push_back({std::move(h.name), std::move(h.target), std::move(h.golden)});
  for (const int32_t row : DifferingArguments(c, p)) {
    changes.push_back({LeafLabel(c, row), Plain(c.target, c.rows[row].target),
                       Plain(c.golden, c.rows[row].golden)});
  }
  return changes;
}

// The pairs of the wrong region at the divergence, or its own one.
std::vector<int32_t> RegionAt(const Comparison& c, const FirstDivergence& f) {
  std::vector<Region> regions;
  if (f.pair == c.first.pair) regions = RegionsOf(c);
  if (regions.empty() || !regions[0].wrong) return {f.pair};
  return std::move(regions[0].pairs);
}

// Calls that one side only makes. None where the other side makes other calls in their place: then
// no single call is missing. A backward call is no line of a program.
std::vector<Change> CallsOfOneSide(const Comparison& c, const FirstDivergence& f) {
  if (!f.leads_to_it || RecordOf(c, f.pair).direction != Direction::kForward) return {};
  std::vector<Change> changes;
  const bool of_target = c.pairs[f.pair].target >= 0;
  for (const int32_t p : RegionAt(c, f)) {
    if ((of_target ? c.pairs[p].golden : c.pairs[p].target) >= 0) return {};
    const Message name = EntryName(c, p);
    changes.push_back({"call"_t, of_target ? name : Message(), of_target ? Message() : name});
  }
  return changes;
}

// Another function in the place of the golden's.
std::vector<Change> OtherFunction(const Comparison& c, const FirstDivergence& f) {
  const int32_t p = f.pair;
  const Record &t = c.target.records[c.pairs[p].target], &g = c.golden.records[c.pairs[p].golden];
  if (t.is_module || g.is_module || t.direction != Direction::kForward ||
      c.classes[p] != CallClass::kIntroduced || BaseApi(t.api) == BaseApi(g.api) ||
      RegionAt(c, f).size() > 1)
    return {};
  return {{"call"_t, std::string(t.name), std::string(g.name)}};
}

bool HasOtherDType(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  if (row.target < 0 || row.golden < 0) return false;
  const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
  return t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor && t.dtype != g.dtype;
}

std::vector<Change> DTypes(const Comparison& c, int32_t p) {
  std::vector<Change> changes;
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (!HasOtherDType(c, i)) continue;
    changes.push_back({LeafLabel(c, static_cast<int32_t>(i)),
                       std::string(c.target.leaves[c.rows[i].target].dtype.view()),
                       std::string(c.golden.leaves[c.rows[i].golden].dtype.view())});
  }
  // Where calls before this one have other dtypes, the runs may use two dtypes on purpose.
  for (uint32_t i = 0; !changes.empty() && i < pair.first_row; ++i) {
    if (HasOtherDType(c, i)) return {};
  }
  return changes;
}

Message TextOf(FixHint::Kind kind, const Change& change) {
  const auto& [what, target, golden] = change;
  switch (kind) {
    case FixHint::Kind::kNone:
      break;
    case FixHint::Kind::kMode:
      return "put {} in {} mode, as in the golden"_t(what, golden);
    case FixHint::Kind::kArgument:
      if (golden.empty())
        return "leave out {}, as the golden does (the target passes {})"_t(what, target);
      if (target.empty()) return "pass {} for {}, as the golden does"_t(golden, what);
      return "set {} to {}, as in the golden (the target has {})"_t(what, golden, target);
    case FixHint::Kind::kCall:
      if (golden.empty()) return "remove {}, which the golden does not call"_t(target);
      if (target.empty()) return "add {}, which the golden calls here"_t(golden);
      return "call {} in place of {}, as the golden does"_t(golden, target);
    case FixHint::Kind::kDType:
      return "make {} a tensor of {}, as in the golden (the target has {})"_t(what, golden, target);
  }
  return {};
}

}  // namespace

Message FixHint::Text() const {
  std::vector<Message> parts;
  for (const Change& change : changes) parts.push_back(TextOf(kind, change));
  return Message::Joined(std::move(parts), "; ");
}

std::string_view FixKindName(FixHint::Kind kind) {
  constexpr std::string_view kNames[] = {"none", "mode", "argument", "call", "dtype"};
  return kNames[static_cast<size_t>(kind)];
}

FixHint FixHintOf(const Comparison& c, const FirstDivergence& f) {
  constexpr size_t kMost = 8;
  using Kind = FixHint::Kind;
  if (f.pair < 0 || OfTwoFrameworks(c.target, c.golden)) return {};
  const auto hint = [](Kind kind, std::vector<Change> changes) {
    if (changes.size() > kMost) changes.resize(kMost);
    return FixHint{changes.empty() ? Kind::kNone : kind, std::move(changes)};
  };
  if (!c.pairs[f.pair].matched()) return hint(Kind::kCall, CallsOfOneSide(c, f));
  if (OtherMode mode = OtherModeAt(c, f.pair); !mode.module.empty()) {
    const Message train = "train"_t, eval = "eval"_t;
    return hint(Kind::kMode, {{std::move(mode.module), mode.target_trains ? train : eval,
                               mode.target_trains ? eval : train}});
  }
  FixHint found = hint(Kind::kArgument, Arguments(c, f.pair));
  if (found.kind == Kind::kNone) found = hint(Kind::kCall, OtherFunction(c, f));
  if (found.kind == Kind::kNone) found = hint(Kind::kDType, DTypes(c, f.pair));
  return found;
}

Message DescribeFirstDTypes(const Comparison& c, int32_t pair) {
  if (OfTwoFrameworks(c.target, c.golden) || !c.pairs[pair].matched()) return {};
  const std::vector<Change> changes = DTypes(c, pair);
  if (changes.empty()) return {};
  return "{} is {} in the target, {} in the golden"_t(changes[0].what, changes[0].target,
                                                      changes[0].golden);
}

}  // namespace msprobe::compare
