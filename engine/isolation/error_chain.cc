#include "engine/isolation/error_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <unordered_map>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/model/named_calls.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;
using compare::RowVerdict;

// The outputs of one dump, found by their numbers.
class Outputs {
 public:
  explicit Outputs(const Dump& dump) : dump_(dump) {
    for (size_t i = 0; i < dump.leaves.size(); ++i) {
      const Leaf& leaf = dump.leaves[i];
      if (leaf.slot == Slot::kOutput && compare::TellsTensorsApart(leaf))
        places_.emplace(Key(leaf), static_cast<uint32_t>(i));
    }
  }
  // The last record before `before` with that output; an API goes before a module, which only hands
  // on what a call inside it made. -1: none.
  int32_t MakerOf(const Leaf& leaf, uint32_t before) const {
    int32_t module = -1, api = -1;
    if (!compare::TellsTensorsApart(leaf)) return -1;
    const auto [first, last] = places_.equal_range(Key(leaf));
    for (auto it = first; it != last; ++it) {
      const Leaf& output = dump_.leaves[it->second];
      if (output.record >= before || !compare::SameNumbers(output, leaf)) continue;
      int32_t& best = dump_.records[output.record].is_module ? module : api;
      best = std::max(best, static_cast<int32_t>(output.record));
    }
    return api >= 0 ? api : module;
  }

 private:
  static size_t Key(const Leaf& leaf) {
    const std::hash<std::string_view> hash;
    if (!leaf.fingerprint.empty()) return hash(leaf.fingerprint.view());
    if (!leaf.checksum.empty()) return hash(leaf.checksum.view());
    return hash(leaf.norm.view()) * 31 + hash(leaf.max.view());
  }
  const Dump& dump_;
  std::unordered_multimap<size_t, uint32_t> places_;
};

bool Differs(const Comparison& c, int32_t pair) {
  const compare::RecordPair& p = c.pairs[pair];
  if (!p.matched()) return true;
  for (uint32_t i = p.first_row; i < p.first_row + p.row_count; ++i) {
    if (c.measures[i].verdict == RowVerdict::kDiffers) return true;
  }
  return false;
}

class Search {
 public:
  explicit Search(const Comparison& c) : c_(c), outputs_(c.target) {
    pair_of_.assign(c.target.records.size(), -1);
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (c.pairs[p].target >= 0) pair_of_[c.pairs[p].target] = static_cast<int32_t>(p);
    }
  }

  // Breadth first, backwards from `pair`.
  ErrorChain Run(int32_t pair) {
    Visit(pair, {});
    int32_t found = -1, farthest = pair;
    while (!open_.empty() && found < 0) {
      const int32_t at = open_.front();
      open_.pop_front();
      if (at == c_.first.pair) found = at;
      if (at < farthest) farthest = at;
      Expand(at);
    }
    ErrorChain chain{.from_first = found >= 0};
    for (int32_t at = found >= 0 ? found : farthest; at >= 0; at = steps_.at(at).next)
      chain.hops.push_back(HopOf(at));
    for (size_t i = 0; i + 1 < chain.hops.size(); ++i)
      chain.hops[i + 1].from = steps_.at(chain.hops[i].pair).through;
    return chain;
  }

 private:
  struct Step {
    int32_t next = -1;    // the pair that took the value; -1: the end of the chain
    std::string through;  // as ErrorHop::from, of `next`
  };

  void Visit(int32_t pair, Step step) {
    if (steps_.emplace(pair, std::move(step)).second) open_.push_back(pair);
  }

  void Expand(int32_t pair) {
    const compare::RecordPair& p = c_.pairs[pair];
    if (p.target < 0) return;
    for (uint32_t i = p.first_row; i < p.first_row + p.row_count; ++i) {
      const int32_t leaf = c_.rows[i].target;
      if (leaf < 0) continue;
      const Leaf& l = c_.target.leaves[leaf];
      const bool given = l.slot != Slot::kOutput && l.slot != Slot::kParameterGrad;
      // A value without a partner may carry the error as well.
      const RowVerdict verdict = c_.measures[i].verdict;
      if (!given || verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise) continue;
      const int32_t maker = outputs_.MakerOf(l, static_cast<uint32_t>(p.target));
      if (maker < 0 || pair_of_[maker] < 0 || !Differs(c_, pair_of_[maker])) continue;
      Visit(pair_of_[maker],
            {.next = pair, .through = compare::LeafLabel(c_, static_cast<int32_t>(i)).English()});
    }
    const int32_t forward =
        pair < static_cast<int32_t>(c_.forward_of.size()) ? c_.forward_of[pair] : -1;
    if (forward >= 0 && Differs(c_, forward)) Visit(forward, {.next = pair, .through = ""});
  }

  ErrorHop HopOf(int32_t pair) const {
    ErrorHop hop{.pair = pair, .name = std::string(compare::EntryName(c_, pair))};
    hop.source_line = compare::SourceLineOf(c_, pair);
    if (!c_.pairs[pair].matched()) {
      hop.error = c_.pairs[pair].target >= 0 ? "only the target makes this call"_t
                                             : "only the golden makes this call"_t;
      return hop;
    }
    const compare::CallSummary call = compare::SummarizeCall(c_, pair);
    if (call.out.worst_row >= 0) hop.error = compare::DescribeError(c_, call.out.worst_row);
    return hop;
  }

  const Comparison& c_;
  const Outputs outputs_;
  std::vector<int32_t> pair_of_;  // for each record of the target
  std::unordered_map<int32_t, Step> steps_;
  std::deque<int32_t> open_;
};

bool IsOneNumber(const Comparison& c, const Record& record, bool target) {
  const Dump& dump = target ? c.target : c.golden;
  bool one = false;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot != Slot::kOutput || leaf.kind != LeafKind::kTensor) continue;
    if (leaf.shape.elements() != 1) return false;
    one = true;
  }
  return one;
}

}  // namespace

Result<int32_t> FindCall(const Comparison& c, std::string_view text) {
  std::vector<NamedCall> calls;
  calls.reserve(c.pairs.size());
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const auto pair = static_cast<int32_t>(p);
    const Record& record = compare::RecordOf(c, pair);
    const bool forward = record.direction == Direction::kForward && !record.is_module;
    calls.push_back({.name = compare::EntryName(c, pair),
                     .line = compare::SourceLineOf(c, pair),
                     .may_be_loss = forward && IsOneNumber(c, record, c.pairs[p].target >= 0)});
  }
  MSPROBE_ASSIGN_OR_RETURN(const size_t call, OneCallNamed(calls, text, c.target.path));
  return static_cast<int32_t>(call);
}

ErrorChain ChainTo(const Comparison& c, int32_t pair) {
  if (!Differs(c, pair)) {
    return {.note = "{} agrees in both runs: no error came there"_t(compare::EntryName(c, pair))};
  }
  ErrorChain chain = Search(c).Run(pair);
  if (chain.from_first) return chain;
  if (c.first.pair < 0) {
    chain.note = "no first divergence was found"_t;
  } else if (c.first.pair > pair) {
    chain.note = "the first divergence, {}, comes after it"_t(compare::EntryName(c, c.first.pair));
  } else {
    chain.note =
        "between {} and {} no recorded value links the calls: an operation that was not recorded, "
        "or one that writes in place"_t(compare::EntryName(c, c.first.pair),
                                        chain.hops.front().name);
  }
  return chain;
}

}  // namespace msprobe::isolation
