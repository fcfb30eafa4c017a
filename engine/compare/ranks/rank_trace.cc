#include "engine/compare/ranks/rank_trace.h"

#include <algorithm>

#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/divergence.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/ranks/exchange_keys.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::compare {
namespace {

// Adds one row to what the call gives or receives.
void AddRow(const Comparison& c, uint32_t row, ExchangePart part, ExchangeCall* call) {
  const Measure& m = c.measures[row];
  const bool wrong = m.verdict == RowVerdict::kDiffers;
  const bool unknown = m.verdict == RowVerdict::kUnknown && !IsNeutral(m);
  if (part == ExchangePart::kGiven) {
    call->gives_wrong |= wrong;
    call->gives_unknown |= unknown;
  } else if (part == ExchangePart::kReceived) {
    call->gets_wrong |= wrong;
  }
}

class Tracer {
 public:
  Tracer(const Comparison& c, int32_t rank) : c_(c) { trace_.rank = rank; }

  RankTrace Trace() {
    std::vector<int32_t> pairs(c_.target.records.size(), -1);  // of each record of the target
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (c_.pairs[p].target >= 0) pairs[c_.pairs[p].target] = static_cast<int32_t>(p);
    }
    for (const NumberedExchange& seen : NumberExchanges(c_.target, trace_.rank)) {
      if (pairs[seen.record] >= 0) Add(seen, pairs[seen.record]);
    }
    std::stable_sort(trace_.exchanges.begin(), trace_.exchanges.end(),
                     [](const auto& a, const auto& b) { return a.pair < b.pair; });
    // Where bits decide, values may differ that no relation says to matter: a rank passes them on.
    trace_.first = c_.first.pair >= 0 ? c_.first.pair : FirstWrongCall(c_);
    if (trace_.first >= 0) {
      trace_.received = ReceivedWith(trace_.first);
      trace_.from_outside = trace_.received < 0 && c_.first.call_class == CallClass::kInherited;
    }
    return std::move(trace_);
  }

 private:
  void Add(const NumberedExchange& seen, int32_t pair) {
    for (size_t i = 0; i < seen.keys.size(); ++i) {
      ExchangeCall call{.name = std::string(c_.target.records[seen.record].name.view()),
                        .key = seen.keys[i],
                        .pair = pair};
      Judge(seen, seen.exchange.parts.empty() ? -1 : static_cast<int32_t>(i), &call);
    }
  }

  // Judges what the call gives and receives. `part` is the index of one send or receive of a batch;
  // -1: the whole call.
  void Judge(const NumberedExchange& seen, int32_t part, ExchangeCall* call) {
    const RecordPair& pair = c_.pairs[call->pair];
    const Record& record = c_.target.records[seen.record];
    call->gives_unknown = !pair.matched();
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (c_.rows[i].target < 0) continue;
      const Leaf& leaf = c_.target.leaves[c_.rows[i].target];
      if (part >= 0 && BatchPartOf(seen.exchange, record, leaf) != part) continue;
      AddRow(c_, i, PartOf(seen.exchange, record, leaf), call);
    }
    if ((call->gives_wrong || call->gets_wrong) && record.stack >= 0) {
      call->source_line = dump::UserSourceLine(c_.target.stacks[record.stack]);
    }
    trace_.exchanges.push_back(std::move(*call));
  }

  // The index of the exchange that brought the first wrong number; -1: none did. That exchange may
  // be recorded after the call that used its result: a result that the program never waits for is
  // read at the end.
  int32_t ReceivedWith(int32_t first) const {
    const auto came = [](const ExchangeCall& e) { return e.gets_wrong && !e.gives_wrong; };
    const Leaf *target = nullptr, *golden = nullptr;  // the first wrong input
    const RecordPair& pair = c_.pairs[first];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count && !target; ++i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || row.golden < 0 || c_.measures[i].verdict != RowVerdict::kDiffers)
        continue;
      const Leaf& leaf = c_.target.leaves[row.target];
      if (leaf.slot == Slot::kOutput || leaf.kind != LeafKind::kTensor) continue;
      target = &leaf, golden = &c_.golden.leaves[row.golden];
    }
    for (size_t i = 0; i < trace_.exchanges.size(); ++i) {
      const ExchangeCall& e = trace_.exchanges[i];
      if (!came(e) || e.pair < first) continue;
      if (e.pair == first || (target != nullptr && Gave(e.pair, *target, *golden))) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

  // Whether the call `p` has an output with these numbers, on both sides.
  bool Gave(int32_t p, const Leaf& target, const Leaf& golden) const {
    const RecordPair& pair = c_.pairs[p];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
      if (t.slot == Slot::kOutput && SameNumbers(t, target) && SameNumbers(g, golden)) return true;
    }
    return false;
  }

  const Comparison& c_;
  RankTrace trace_;
};

}  // namespace

RankTrace TraceRank(const Comparison& comparison, int32_t rank) {
  return Tracer(comparison, rank).Trace();
}

}  // namespace msprobe::compare
