#include "engine/compare/layouts/joined_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/ranks/exchange_keys.h"

namespace msprobe::compare::layouts {
namespace {

using Key = uint64_t;

Key Mixed(Key a, uint64_t b) {
  return (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
}

// The places of the calls of one rank.
class CallPlaces {
 public:
  explicit CallPlaces(const RankRun& run)
      : keys(run.dump->records.size()), run_(run), dump_(*run.dump) {
    NumberModules();
    for (size_t i = 0; i < dump_.records.size(); ++i) {
      const Record& r = dump_.records[i];
      if (!r.is_module && r.direction != Direction::kBackward) KeyOfCall(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < dump_.records.size(); ++i) {
      const Record& r = dump_.records[i];
      if (!r.is_module && r.direction == Direction::kBackward)
        KeyOfBackward(static_cast<int32_t>(i));
    }
  }

  std::vector<Key> keys;         // of each record
  std::vector<int32_t> forward;  // of a backward record: its forward record; -1: none

 private:
  // The calls of a module count in the order of their numbers, whatever the numbers are.
  void NumberModules() {
    forward.assign(dump_.records.size(), -1);
    std::map<std::pair<std::string, Direction>, std::vector<std::pair<int64_t, int32_t>>> calls;
    for (size_t i = 0; i < dump_.records.size(); ++i) {
      const Record& r = dump_.records[i];
      if (r.is_module)
        calls[{run_.modules.Of(PathOfModule(r.api)), r.direction}].emplace_back(
            r.call, static_cast<int32_t>(i));
    }
    for (auto& [place, of] : calls) {
      std::stable_sort(of.begin(), of.end());
      const Key base = HashText(place.first, 11 + static_cast<uint64_t>(place.second));
      for (size_t n = 0; n < of.size(); ++n) {
        keys[of[n].second] = Mixed(base, n);
        by_name_[dump_.records[of[n].second].name.view()] = of[n].second;
      }
    }
    for (size_t i = 0; i < dump_.records.size(); ++i) {
      const Record& r = dump_.records[i];
      if (!r.is_module || r.direction == Direction::kForward) continue;
      const auto found = calls.find({run_.modules.Of(PathOfModule(r.api)), Direction::kForward});
      if (found == calls.end()) continue;
      for (const auto& [call, record] : found->second) {
        if (call == r.call) forward[i] = record;
      }
    }
  }

  void KeyOfCall(int32_t index) {
    const Record& r = dump_.records[index];
    Key scope = 1;
    if (const auto parent = by_name_.find(r.parent.view()); parent != by_name_.end())
      scope = keys[parent->second];
    else if (!r.module.empty())
      scope = HashText(run_.modules.Of(PathOfModule(r.module)), 3);
    Key base = Mixed(scope, HashText(r.api, static_cast<uint64_t>(r.direction)));
    if (r.stack >= 0 && !dump_.stacks[r.stack].empty())
      base = Mixed(base, HashText(dump_.stacks[r.stack].front()));
    // What is sent and received is another value on each rank.
    if (const std::optional<Exchange> e = ExchangeOf(dump_, r); e && IsPointToPoint(*e))
      base = Mixed(base, static_cast<uint64_t>(run_.rank) + 1);
    keys[index] = Mixed(base, counts_[base]++);
    if (r.direction == Direction::kForward) calls_[{r.api.view(), r.call}] = index;
  }

  void KeyOfBackward(int32_t index) {
    const Record& r = dump_.records[index];
    if (const auto found = calls_.find({r.api.view(), r.call}); found != calls_.end()) {
      forward[index] = found->second;
      keys[index] = Mixed(keys[found->second], 5);
    } else {
      KeyOfCall(index);
    }
  }

  const RankRun& run_;
  const Dump& dump_;
  std::unordered_map<std::string_view, int32_t> by_name_;  // of modules
  std::unordered_map<Key, uint64_t> counts_;
  std::map<std::pair<std::string_view, int64_t>, int32_t> calls_;
};

// The joined calls, and which must come before which.
class Order {
 public:
  explicit Order(std::span<const RankRun> runs) : runs_(runs), of_record_(runs.size()) {
    std::unordered_map<Key, int32_t> by_key;
    std::vector<CallPlaces> places;
    for (const RankRun& run : runs) places.emplace_back(run);
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::vector<Key>& keys = places[i].keys;
      for (size_t r = 0; r < keys.size(); ++r) {
        const auto [at, is_new] = by_key.emplace(keys[r], static_cast<int32_t>(calls_.size()));
        if (is_new) calls_.emplace_back();
        // A name that occurs twice in a damaged dump is a call of its own.
        std::vector<RankCall>& of = calls_[at->second].of;
        int32_t call = at->second;
        if (!of.empty() && of.back().run == static_cast<int32_t>(i)) {
          call = static_cast<int32_t>(calls_.size());
          calls_.emplace_back();
        }
        calls_[call].of.push_back({static_cast<int32_t>(i), static_cast<int32_t>(r)});
        of_record_[i].push_back(call);
      }
      for (size_t r = 0; r < keys.size(); ++r) {
        if (const int32_t forward = places[i].forward[r]; forward >= 0)
          calls_[of_record_[i][r]].forward = of_record_[i][forward];
      }
    }
    after_.resize(calls_.size());
    waits_.assign(calls_.size(), 0);
    for (const std::vector<int32_t>& calls : of_record_) {
      for (size_t r = 1; r < calls.size(); ++r) Add(calls[r - 1], calls[r]);
    }
    AddExchanges();
  }

  std::vector<JoinedCall> Sorted() {
    // The next call is the one that comes first in the lowest of its ranks.
    const auto before = [this](int32_t a, int32_t b) {
      const RankCall &x = calls_[a].of.front(), &y = calls_[b].of.front();
      return std::tie(x.record, x.run) > std::tie(y.record, y.run);
    };
    std::priority_queue<int32_t, std::vector<int32_t>, decltype(before)> ready(before);
    std::vector<char> done(calls_.size(), 0);
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (waits_[i] == 0) ready.push(static_cast<int32_t>(i));
    }
    std::vector<int32_t> place(calls_.size(), -1);
    std::vector<JoinedCall> sorted;
    std::vector<size_t> next(runs_.size(), 0);
    while (sorted.size() < calls_.size()) {
      if (ready.empty()) ready.push(FirstWaiting(done, &next));
      const int32_t call = ready.top();
      ready.pop();
      if (done[call]++ != 0) continue;
      place[call] = static_cast<int32_t>(sorted.size());
      sorted.push_back(calls_[call]);
      for (const int32_t later : after_[call]) {
        if (--waits_[later] == 0 && done[later] == 0) ready.push(later);
      }
    }
    for (JoinedCall& call : sorted) {
      if (call.forward >= 0) call.forward = place[call.forward];
    }
    return sorted;
  }

 private:
  void Add(int32_t first, int32_t second) {
    if (first == second) return;
    after_[first].push_back(second);
    ++waits_[second];
  }

  // What one process sends stands before what the other receives.
  void AddExchanges() {
    std::unordered_map<std::string, int32_t> sent;
    std::vector<std::pair<std::string, int32_t>> received;
    for (size_t i = 0; i < runs_.size(); ++i) {
      for (const NumberedExchange& n : NumberExchanges(*runs_[i].dump, runs_[i].rank)) {
        if (!IsPointToPoint(n.exchange) || !n.exchange.parts.empty()) continue;
        const int32_t call = of_record_[i][n.record];
        if (n.exchange.role == ProcessGroup::Role::kSource)
          sent.emplace(n.keys.front(), call);
        else
          received.emplace_back(n.keys.front(), call);
      }
    }
    for (const auto& [key, call] : received) {
      if (const auto found = sent.find(key); found != sent.end()) Add(found->second, call);
    }
  }

  // Where every call waits for another one: the next one of the lowest rank.
  int32_t FirstWaiting(const std::vector<char>& done, std::vector<size_t>* next) const {
    for (size_t i = 0; i < runs_.size(); ++i) {
      size_t& at = (*next)[i];
      while (at < of_record_[i].size() && done[of_record_[i][at]] != 0) ++at;
      if (at < of_record_[i].size()) return of_record_[i][at];
    }
    return 0;
  }

  std::span<const RankRun> runs_;
  std::vector<std::vector<int32_t>> of_record_;  // of each run
  std::vector<JoinedCall> calls_;
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> waits_;
};

}  // namespace

std::string_view PathOfModule(std::string_view api) {
  const size_t first = api.find('.'), last = api.rfind('.');
  return first == api.npos || last <= first ? std::string_view()
                                            : api.substr(first + 1, last - first - 1);
}

std::vector<JoinedCall> Without(std::vector<JoinedCall> calls,
                                const std::function<bool(const JoinedCall&)>& is_left_out) {
  std::vector<int32_t> place(calls.size(), -1);
  std::vector<JoinedCall> kept;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (is_left_out(calls[i])) continue;
    place[i] = static_cast<int32_t>(kept.size());
    kept.push_back(std::move(calls[i]));
  }
  for (JoinedCall& call : kept) {
    if (call.forward >= 0) call.forward = place[call.forward];
  }
  return kept;
}

std::vector<JoinedCall> JoinCalls(std::span<const RankRun> runs) { return Order(runs).Sorted(); }

}  // namespace msprobe::compare::layouts
