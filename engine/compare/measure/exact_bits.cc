#include "engine/compare/measure/exact_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/model/precision_text.h"

namespace msprobe::compare {
namespace {

// What of a run may differ without other bits: the seed and the state of the generator show in the
// values that are drawn, another commit in the calls, a precision policy in the dtypes.
constexpr std::array<std::string_view, 4> kNotEnvironment = {"seed", "random_state", "git",
                                                             kPrecision};
// Without these nothing is known of the environment.
constexpr std::array<std::string_view, 4> kNeeded = {"torch", "device", "threads", "deterministic"};

std::string_view Find(const Dump& dump, std::string_view key) {
  for (const auto& [name, value] : dump.provenance) {
    if (name == key) return value;
  }
  return {};
}

bool SameEnvironment(const Dump& a, const Dump& b) {
  for (const std::string_view key : kNeeded) {
    if (Find(a, key).empty() || Find(b, key).empty()) return false;
  }
  const auto same = [](const Dump& one, const Dump& other) {
    return std::all_of(one.provenance.begin(), one.provenance.end(), [&](const auto& item) {
      return std::find(kNotEnvironment.begin(), kNotEnvironment.end(), item.first) !=
                 kNotEnvironment.end() ||
             Find(other, item.first) == item.second;
    });
  };
  return same(a, b) && same(b, a);
}

bool ShowsBits(const Leaf& leaf) {
  return leaf.kind != LeafKind::kTensor || !leaf.fingerprint.empty() || !leaf.checksum.empty() ||
         !leaf.data_name.empty() || leaf.shape.elements() == 0;
}

// Whether both runs make the same calls, of values that look the same.
bool SameCalls(const Comparison& c) {
  for (const RecordPair& pair : c.pairs) {
    if (!pair.matched() || pair.match != Match::kExact) return false;
  }
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    if (c.measures[i].reason == Reason::kOneRecorded) continue;
    // An optimizer that computes its step in another way, or was recorded before msprobe said so.
    if (c.measures[i].reason == Reason::kOtherForm) return false;
    if (row.target < 0 || row.golden < 0) return false;
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    if (t.kind != g.kind || t.dtype != g.dtype || !ShowsBits(t) || !ShowsBits(g)) return false;
    if (t.kind == LeafKind::kTensor && t.shape.view() != g.shape.view()) return false;
    if (c.target.StridesOf(row.target) != c.golden.StridesOf(row.golden)) return false;
  }
  return true;
}

// Whether another process gave the value to this one, which gave what it gives in the golden.
bool IsReceived(const Dump& dump, const Record& record, const Leaf& leaf) {
  const std::optional<Exchange> exchange = ExchangeOf(dump, record);
  return exchange && PartOf(*exchange, record, leaf) == ExchangePart::kReceived;
}

// Whether a row has other bits, of which NaN on both sides leaves nothing else to judge.
bool HasOtherBits(const Comparison& c, uint32_t row) {
  const std::string_view mine = c.target.leaves[c.rows[row].target].fingerprint,
                         golden = c.golden.leaves[c.rows[row].golden].fingerprint;
  return c.measures[row].verdict == RowVerdict::kUnknown && !mine.empty() && !golden.empty() &&
         mine != golden;
}

// Whether the elements of a weight stand in another order: sums of its rows run in another order.
bool IsReordered(const Comparison& c, uint32_t row, const FingerprintSet& weights) {
  return c.measures[row].verdict == RowVerdict::kNoise &&
         c.measures[row].reason == Reason::kOtherBits &&
         weights.Has(c.target.leaves[c.rows[row].target].fingerprint);
}

// Whether a call takes a tensor, as a step takes its data.
bool IsGiven(const Record& record, const Leaf& leaf) {
  return leaf.slot != Slot::kOutput && leaf.slot != Slot::kParameter &&
         leaf.kind == LeafKind::kTensor && record.direction == Direction::kForward &&
         !IsOptimizerCall(record.api);
}

// Whether an optimizer makes it.
bool IsStepped(const Record& record, const Leaf& leaf) {
  return IsOptimizerCall(record.api) && leaf.slot == Slot::kOutput;
}

// Whether the first value with other bits is one that no recorded call of this process made: then
// code between the recorded calls or inside of an optimizer computes it in another way (the weight
// of a parametrization), or another process computes what it sends in another way. What is no
// rounding is an error of such code, but for the first data that arrive: these are in another order
// or in other parts, in which sums run.
bool BeginsUnrecorded(const Comparison& c) {
  FingerprintSet made, weights;
  for (const Weight& weight : c.target.weights) {
    made.Insert(weight.fingerprint);
    weights.Insert(weight.fingerprint);
  }
  bool data_arrived = false;
  for (const RecordPair& pair : c.pairs) {
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (c.rows[i].target < 0 || c.rows[i].golden < 0) continue;
      if (!c.target.AllocationOf(c.rows[i].target).empty()) continue;  // nobody has written it
      const Leaf& leaf = c.target.leaves[c.rows[i].target];
      const Record& record = c.target.records[pair.target];
      const auto arrives = [&] { return IsGiven(record, leaf) && !made.Has(leaf.fingerprint); };
      const auto received = [&] { return IsReceived(c.target, record, leaf); };
      const RowVerdict verdict = c.measures[i].verdict;
      if (IsReordered(c, i, weights)) return true;
      if (verdict == RowVerdict::kDiffers || (HasOtherBits(c, i) && arrives()))
        return !data_arrived && arrives() && !received();
      if (verdict == RowVerdict::kNoise) {
        return arrives() || received() || IsStepped(record, leaf);
      }
      data_arrived = data_arrived || (verdict == RowVerdict::kEqual && arrives());
      if (leaf.slot == Slot::kOutput) made.Insert(leaf.fingerprint);
    }
  }
  return false;
}

}  // namespace

Message WhyBitsDecide(const CompareOptions& options, const Comparison& c) {
  switch (options.exactness) {
    case Exactness::kExact:
      return "bits decide: as asked for"_t;
    case Exactness::kTolerant:
      return {};
    case Exactness::kAuto:
      break;
  }
  // Calls of modules look the same when the code between them computes in another order.
  const bool told = HasOperations(c.target) && HasOperations(c.golden);
  if (!told || !SameEnvironment(c.target, c.golden) || !SameCalls(c) || BeginsUnrecorded(c))
    return {};
  const Message threads =
      Find(c.target, "threads") == "1" ? "1 thread"_t : "{} threads"_t(Find(c.target, "threads"));
  return "bits decide: both runs have torch {}, {}, {} and the same settings, and make the same "
         "calls (--tolerant: differences within rounding are noise)"_t(
             Find(c.target, "torch"), Find(c.target, "device"), threads);
}

void JudgeByBits(Comparison* c) {
  for (size_t i = 0; i < c->rows.size(); ++i) {
    Measure& m = c->measures[i];
    if (m.verdict != RowVerdict::kNoise) continue;
    m.verdict = RowVerdict::kDiffers;
    if (c->target.leaves[c->rows[i].target].kind == LeafKind::kScalar)
      m.reason = Reason::kValueDiffers;
  }
}

}  // namespace msprobe::compare
