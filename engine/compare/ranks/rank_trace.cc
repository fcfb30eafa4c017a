#include "engine/compare/ranks/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/divergence.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/measure/exchange.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::compare {
namespace {

struct Seen {
  int32_t pair;
  Exchange exchange;
  const Record* record;
};

// Puts the calls of each api into the order of their numbers, which is the order in which the
// program made them. They are recorded in another order: each one when its result is complete.
void SortByCall(std::vector<Seen>* calls) {
  std::map<std::string_view, std::vector<size_t>> places;
  for (size_t i = 0; i < calls->size(); ++i) places[(*calls)[i].record->api].push_back(i);
  std::vector<Seen> sorted = *calls;
  for (const auto& [api, at] : places) {
    std::vector<size_t> by_call = at;
    std::stable_sort(by_call.begin(), by_call.end(), [&](size_t a, size_t b) {
      return (*calls)[a].record->call < (*calls)[b].record->call;
    });
    for (size_t i = 0; i < at.size(); ++i) sorted[at[i]] = (*calls)[by_call[i]];
  }
  *calls = std::move(sorted);
}

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
    std::vector<Seen> calls;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (c_.pairs[p].target < 0) continue;
      const Record& record = c_.target.records[c_.pairs[p].target];
      if (std::optional<Exchange> e = ExchangeOf(c_.target, record)) {
        calls.push_back({static_cast<int32_t>(p), std::move(*e), &record});
      }
    }
    SortByCall(&calls);
    for (const Seen& seen : calls) Add(seen);
    std::stable_sort(trace_.exchanges.begin(), trace_.exchanges.end(),
                     [](const auto& a, const auto& b) { return a.pair < b.pair; });
    trace_.first = FirstWrongCall(c_);
    if (trace_.first >= 0) {
      trace_.received = ReceivedWith(trace_.first);
      trace_.from_outside = trace_.received < 0 && c_.first.call_class == CallClass::kInherited;
    }
    return std::move(trace_);
  }

 private:
  void Add(const Seen& seen) {
    const Exchange& e = seen.exchange;
    const int32_t self = e.rank >= 0 ? e.rank : trace_.rank;
    if (e.parts.empty()) {
      ExchangeCall call = Start(seen);
      if (IsPointToPoint(e)) {
        call.key = PointToPointKey(self, e.peer, e.role == ProcessGroup::Role::kSource);
      } else {
        call.key = Numbered(fmt::format("{} {}", e.kind, e.ranks));
      }
      Judge(seen, -1, &call);
      return;
    }
    for (size_t i = 0; i < e.parts.size(); ++i) {
      ExchangeCall call = Start(seen);
      call.key = PointToPointKey(self, e.parts[i].peer, e.parts[i].sends);
      Judge(seen, static_cast<int32_t>(i), &call);
    }
  }

  static ExchangeCall Start(const Seen& seen) {
    ExchangeCall call;
    call.name = seen.record->name;
    call.pair = seen.pair;
    return call;
  }

  // Judges what the call gives and receives. `part` is the index of one send or receive of a batch;
  // -1: the whole call.
  void Judge(const Seen& seen, int32_t part, ExchangeCall* call) {
    const RecordPair& pair = c_.pairs[seen.pair];
    call->gives_unknown = !pair.matched();
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (c_.rows[i].target < 0) continue;
      const Leaf& leaf = c_.target.leaves[c_.rows[i].target];
      if (part >= 0 && BatchPartOf(seen.exchange, *seen.record, leaf) != part) continue;
      AddRow(c_, i, PartOf(seen.exchange, *seen.record, leaf), call);
    }
    if ((call->gives_wrong || call->gets_wrong) && seen.record->stack >= 0) {
      call->source_line = dump::UserSourceLine(c_.target.stacks[seen.record->stack]);
    }
    trace_.exchanges.push_back(std::move(*call));
  }

  std::string PointToPointKey(int32_t self, int32_t peer, bool sends) {
    return Numbered(fmt::format("{} to {}", sends ? self : peer, sends ? peer : self));
  }
  std::string Numbered(std::string what) {
    const int64_t number = counts_[what]++;
    return fmt::format("{} #{}", what, number);
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
  std::map<std::string, int64_t> counts_;
};

}  // namespace

RankTrace TraceRank(const Comparison& comparison, int32_t rank) {
  return Tracer(comparison, rank).Trace();
}

}  // namespace msprobe::compare
