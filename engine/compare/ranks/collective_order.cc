#include "engine/compare/ranks/collective_order.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/ranks/exchange_keys.h"
#include "engine/compare/ranks/rank_origin.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::compare {
namespace {

constexpr double kOfOrder = 0.95;
constexpr size_t kMostLone = 256;  // of a rank; the first one is named

// "all_reduce [0, 1]" of "all_reduce [0, 1] #3".
std::string_view WhatOf(std::string_view key) { return key.substr(0, key.rfind(" #")); }

// The 3 of it.
int64_t NumberOf(std::string_view key) {
  int64_t number = 0;
  const size_t begin = key.rfind('#') + 1;
  std::from_chars(key.data() + begin, key.data() + key.size(), number);
  return number;
}

// "[0, 1]"; "": all processes.
std::string_view GroupOf(std::string_view what) {
  const size_t begin = what.find('[');
  return begin == std::string_view::npos ? std::string_view() : what.substr(begin);
}

// The ranks of one step that make a collective call, leave it out, or ended before it.
struct Taken {
  std::vector<int32_t> makes, leaves_out, waits;
};

// Which ranks of a step make a call that is at one place of their order.
class StepOfRanks {
 public:
  explicit StepOfRanks(std::span<RankResult> results) : results_(results) {
    for (const RankResult& r : results_) {
      std::map<std::string_view, int> added;  // what only the target makes, by its kind and group
      for (const LoneCollective& lone : r.collectives.lone)
        lone_[{lone.in_target, IdOf(lone, &added)}].insert(r.rank);
    }
  }

  // The first lone call of a result that other ranks of its group treat differently; null: none.
  const LoneCollective* FirstOf(const RankResult& r, Taken* taken) {
    std::map<std::string_view, int> added;
    for (const LoneCollective& lone : r.collectives.lone) {
      const std::set<int32_t>& alone = lone_[{lone.in_target, IdOf(lone, &added)}];
      const std::vector<const RankResult*>& members = MembersOf(WhatOf(lone.key));
      if (alone.size() == members.size()) continue;  // the programs differ, and not the ranks
      *taken = TakenBy(lone, alone, members);
      const std::vector<int32_t>& others = lone.in_target ? taken->leaves_out : taken->makes;
      if (!others.empty() || (!lone.in_target && !taken->waits.empty())) return &lone;
    }
    return nullptr;
  }

 private:
  using Id = std::pair<std::string_view, int>;

  // Of a call that the golden makes its key tells; of one more its number among these.
  static Id IdOf(const LoneCollective& lone, std::map<std::string_view, int>* added) {
    if (!lone.in_target) return {lone.key, 0};
    const std::string_view what = WhatOf(lone.key);
    return {what, (*added)[what]++};
  }

  // `alone`: the ranks for which it is a lone call.
  static Taken TakenBy(const LoneCollective& lone, const std::set<int32_t>& alone,
                       std::span<const RankResult* const> members) {
    Taken taken;
    for (const RankResult* r : members) {
      if (alone.contains(r->rank) != lone.in_target) {
        // Of what comes after its end nobody knows whether the rank would have left it out.
        if (!lone.in_target || r->collectives.after_end.empty())
          taken.leaves_out.push_back(r->rank);
        continue;
      }
      const int64_t after_end = FirstAfterEnd(*r, WhatOf(lone.key));
      if (lone.in_target || after_end > NumberOf(lone.key))
        taken.makes.push_back(r->rank);
      else if (after_end == NumberOf(lone.key))
        taken.waits.push_back(r->rank);
    }
    return taken;
  }

  // The results of the ranks that take part in calls of a kind and group.
  const std::vector<const RankResult*>& MembersOf(std::string_view what) {
    const auto [at, is_new] = members_.try_emplace(what);
    for (const RankResult& r : results_) {
      if (is_new && r.failed.ok() && IsMember(r, what)) at->second.push_back(&r);
    }
    return at->second;
  }

  // The number of the first call of this kind and group that comes after the end of a recording.
  static int64_t FirstAfterEnd(const RankResult& r, std::string_view what) {
    for (const std::string& key : r.collectives.after_end) {
      if (WhatOf(key) == what) return NumberOf(key);
    }
    return INT64_MAX;
  }

  static bool IsMember(const RankResult& r, std::string_view what) {
    std::string_view group = GroupOf(what);
    if (group.empty()) return true;
    const std::string number = std::to_string(r.rank);
    for (size_t at = group.find(number); at != std::string_view::npos;
         at = group.find(number, at + 1)) {
      const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
      if (!is_digit(group[at - 1]) && !is_digit(group[at + number.size()])) return true;
    }
    return false;
  }

  std::span<RankResult> results_;
  std::map<std::pair<bool, Id>, std::set<int32_t>> lone_;  // the ranks for which each is alone
  std::map<std::string_view, std::vector<const RankResult*>> members_;
};

Message NamesOf(const std::vector<int32_t>& ranks) {
  return ranks.size() == 1 ? "rank {}"_t(ranks[0]) : "ranks {}"_t(RankList(ranks));
}

Message DescribeLone(const RankResult& r, const LoneCollective& lone, const Taken& taken) {
  if (lone.in_target) {
    return "rank {} makes this call, which the golden does not make; of its group {} did not"_t(
        r.rank, NamesOf(taken.leaves_out));
  }
  Message others;
  if (!taken.waits.empty())
    others = "the recording of {} ends at it, as if it waited there"_t(NamesOf(taken.waits));
  if (!taken.makes.empty())
    others = Message::Joined({std::move(others), "{} made it"_t(NamesOf(taken.makes))}, "; ");
  return "rank {} goes on without this call, which all ranks of its group make in the golden; {}"_t(
      r.rank, std::move(others));
}

// A call that both runs make without being partners: as many of one kind and group are no more and
// no less.
void DropUnpaired(std::vector<LoneCollective>* lone) {
  std::map<std::string_view, int> more;  // in the target
  for (const LoneCollective& each : *lone) more[WhatOf(each.key)] += each.in_target ? 1 : -1;
  std::vector<LoneCollective> kept;
  for (auto each = lone->rbegin(); each != lone->rend(); ++each) {
    int& count = more[WhatOf(each->key)];
    if (each->in_target ? count <= 0 : count >= 0) continue;
    count += each->in_target ? -1 : 1;
    kept.push_back(*each);
  }
  lone->assign(kept.rbegin(), kept.rend());
}

void NameLone(const LoneCollective& lone, Message why, RankResult* r) {
  r->first = {.pair = lone.pair,
              .call_class = CallClass::kIntroduced,
              .confidence = kOfOrder,
              .source_line = lone.source_line,
              .why = std::move(why),
              .advice =
                  "look for a branch that not all ranks take: the ranks of a group make its "
                  "collective calls in one order"_t};
  r->first_name = Message(lone.name);
  r->trace.first = lone.pair;
  r->trace.received = -1;
  r->trace.from_outside = false;
  r->summary.verdict = RunVerdict::kDiffers;
}

}  // namespace

CollectiveOrder CollectiveOrderOf(const Comparison& c, int32_t rank) {
  CollectiveOrder order;
  std::vector<int32_t> pair_of_target(c.target.records.size(), -1),
      pair_of_golden(c.golden.records.size(), -1);
  int32_t last_target = -1, last_golden = -1;  // of the calls that both make
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const RecordPair& pair = c.pairs[p];
    if (pair.target >= 0) pair_of_target[pair.target] = static_cast<int32_t>(p);
    if (pair.golden >= 0) pair_of_golden[pair.golden] = static_cast<int32_t>(p);
    if (!pair.matched()) continue;
    last_target = std::max(last_target, pair.target);
    last_golden = std::max(last_golden, pair.golden);
  }
  std::set<std::string> at_end;
  const auto add = [&](const NumberedExchange& seen, int32_t pair, bool in_target) {
    if (pair < 0 || IsPointToPoint(seen.exchange) || seen.keys.size() != 1) return;
    const bool matched = c.pairs[pair].matched();
    // Where a rank of the group dies, the others' calls may end with an exception.
    const bool failed =
        matched && !in_target && !c.target.records[c.pairs[pair].target].exception.empty();
    if (matched && !failed) return;
    const bool ended = in_target ? !c.golden.complete && seen.record > last_target
                                 : !c.target.complete && seen.record > last_golden;
    const std::string what(WhatOf(seen.keys[0]));
    if (ended || failed) {
      if (!in_target && at_end.insert(what).second) order.after_end.push_back(seen.keys[0]);
      return;
    }
    const Dump& dump = in_target ? c.target : c.golden;
    order.lone.push_back({.pair = pair,
                          .in_target = in_target,
                          .key = seen.keys[0],
                          .name = std::string(dump.records[seen.record].name.view()),
                          .source_line = SourceLineOf(c, pair)});
  };
  for (const NumberedExchange& seen : NumberExchanges(c.target, rank))
    add(seen, pair_of_target[seen.record], true);
  for (const NumberedExchange& seen : NumberExchanges(c.golden, rank))
    add(seen, pair_of_golden[seen.record], false);
  DropUnpaired(&order.lone);
  std::stable_sort(order.lone.begin(), order.lone.end(),
                   [](const auto& a, const auto& b) { return a.pair < b.pair; });
  if (order.lone.size() > kMostLone) order.lone.resize(kMostLone);
  return order;
}

void JudgeCollectives(std::span<RankResult> results) {
  for (size_t begin = 0; begin < results.size();) {
    size_t end = begin;
    while (end < results.size() && results[end].step == results[begin].step) ++end;
    const std::span<RankResult> of_step = results.subspan(begin, end - begin);
    StepOfRanks step(of_step);
    bool named = false;
    for (RankResult& r : of_step) {
      Taken taken;
      const LoneCollective* lone = step.FirstOf(r, &taken);
      if (lone == nullptr || (r.first.pair >= 0 && r.first.pair < lone->pair)) continue;
      NameLone(*lone, DescribeLone(r, *lone, taken), &r);
      named = true;
    }
    if (named) return;  // what comes after it follows from it
    begin = end;
  }
}

}  // namespace msprobe::compare
