#include "engine/compare/ranks/rank_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string_view>

#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

struct Member {
  size_t trace, exchange;
};
using Exchanges = std::map<std::string_view, std::vector<Member>>;  // by key

// Computes the layer of each exchange: how many exchanges must have happened before it, which is
// the length of the longest chain. The run is simulated: a process goes on from an exchange when
// all processes that take part in it have arrived there.
//
// Example: ranks 0 and 1 do the exchange A, ranks 2 and 3 do B, then all four do C. A and B have
// layer 0, because neither waits for the other. C has layer 1.
class Layers {
 public:
  Layers(std::span<const RankTrace> traces, const Exchanges& exchanges)
      : traces_(traces), exchanges_(exchanges), next_(traces.size(), 0), time_(traces.size(), 0) {
    std::deque<size_t> ready;
    for (size_t t = 0; t < traces.size(); ++t) ready.push_back(t);
    for (size_t stuck = 0; stuck < traces.size();) {
      while (!ready.empty()) {
        const size_t t = ready.front();
        ready.pop_front();
        Advance(t, &ready);
      }
      // Nobody can go on: some dump was cut short, and others wait for that process. The first one
      // that waits goes on without the others.
      while (stuck < traces.size() && next_[stuck] >= traces[stuck].exchanges.size()) ++stuck;
      if (stuck < traces.size()) Complete(KeyAt(stuck), &ready);
    }
  }
  int64_t Of(std::string_view key) const {
    const auto found = layers_.find(key);
    return found == layers_.end() ? 0 : found->second;
  }

 private:
  std::string_view KeyAt(size_t t) const { return traces_[t].exchanges[next_[t]].key; }

  void Advance(size_t t, std::deque<size_t>* ready) {
    while (next_[t] < traces_[t].exchanges.size()) {
      const std::string_view key = KeyAt(t);
      if (const auto done = layers_.find(key); done != layers_.end()) {
        time_[t] = std::max(time_[t], done->second) + 1;
        ++next_[t];
        continue;
      }
      std::set<size_t>& waiting = waiting_[key];
      waiting.insert(t);
      std::set<size_t> members;
      for (const Member& m : exchanges_.at(key)) members.insert(m.trace);
      if (waiting.size() < members.size()) return;
      Complete(key, ready);
    }
  }

  void Complete(std::string_view key, std::deque<size_t>* ready) {
    int64_t layer = 0;
    for (const size_t t : waiting_[key]) layer = std::max(layer, time_[t]);
    layers_[key] = layer;
    for (const size_t t : waiting_[key]) ready->push_back(t);
    waiting_.erase(key);
  }

  std::span<const RankTrace> traces_;
  const Exchanges& exchanges_;
  std::vector<size_t> next_;   // for each trace: the exchange at which it has arrived
  std::vector<int64_t> time_;  // for each trace: the length of the longest chain up to there
  std::map<std::string_view, int64_t> layers_;
  std::map<std::string_view, std::set<size_t>> waiting_;
};

// The ranks that take part, read from a key such as "all_reduce [0, 1] #3" or "0 to 1 #2". Empty:
// all.
std::vector<int32_t> Participants(std::string_view key) {
  std::vector<int32_t> ranks;
  const size_t open = key.find('['), close = key.find(']');
  if (open != key.npos && close != key.npos && open < close) {
    for (std::string_view part : Split(key.substr(open + 1, close - open - 1), ',')) {
      if (part.starts_with(' ')) part.remove_prefix(1);
      ranks.push_back(static_cast<int32_t>(NumberAfter(part, "")));
    }
  } else if (const size_t to = key.find(" to "); to != key.npos) {
    const std::string_view second = key.substr(to + 4);
    ranks.push_back(static_cast<int32_t>(NumberAfter(key.substr(0, to), "")));
    ranks.push_back(static_cast<int32_t>(NumberAfter(second.substr(0, second.find(' ')), "")));
  }
  return ranks;
}

void InsertSorted(std::vector<int32_t>* ranks, int32_t rank) {
  const auto at = std::lower_bound(ranks->begin(), ranks->end(), rank);
  if (at == ranks->end() || *at != rank) ranks->insert(at, rank);
}

class Search {
 public:
  explicit Search(std::span<const RankTrace> traces) : traces_(traces) {
    for (size_t t = 0; t < traces.size(); ++t) {
      for (size_t e = 0; e < traces[t].exchanges.size(); ++e) {
        exchanges_[traces[t].exchanges[e].key].push_back({t, e});
      }
    }
  }

  RankOrigins Run() {
    const Layers layers(traces_, exchanges_);
    std::map<std::string_view, RankHop> hops;
    givers_.resize(traces_.size());
    for (size_t t = 0; t < traces_.size(); ++t) {
      const RankTrace& trace = traces_[t];
      if (trace.first < 0) continue;
      if (trace.received < 0) {
        RankOrigin origin{.trace = t};
        for (const ExchangeCall& e : trace.exchanges) {
          if (e.pair < trace.first) origin.exchanges_before = layers.Of(e.key) + 1;
        }
        found_.origins.push_back(std::move(origin));
        continue;
      }
      const ExchangeCall& call = trace.exchanges[trace.received];
      RankHop& hop = hops[call.key];
      hop.layer = layers.Of(call.key);
      InsertSorted(&hop.to, trace.rank);
      if (hop.name.empty()) hop.name = call.name, hop.source_line = call.source_line;
      RankOrigin place{.trace = t, .in_exchange = true, .exchanges_before = hop.layer};
      FindGivers(t, call.key, &hop, &place);
      if (givers_[t].empty()) found_.origins.push_back(std::move(place));
    }
    for (auto& [key, hop] : hops) found_.hops.push_back(std::move(hop));
    std::stable_sort(found_.hops.begin(), found_.hops.end(),
                     [](const RankHop& a, const RankHop& b) { return a.layer < b.layer; });
    std::vector<RankOrigin> made;
    for (RankOrigin& origin : found_.origins) {
      (traces_[origin.trace].from_outside ? found_.from_outside : made).push_back(origin);
    }
    made.empty() ? found_.from_outside.clear() : found_.origins.swap(made);
    for (RankOrigin& origin : found_.origins) Reach(&origin);
    std::stable_sort(found_.origins.begin(), found_.origins.end(),
                     [this](const auto& a, const auto& b) {
                       if (a.exchanges_before != b.exchanges_before)
                         return a.exchanges_before < b.exchanges_before;
                       if (a.in_exchange != b.in_exchange) return b.in_exchange;
                       if (a.reached.size() != b.reached.size())
                         return a.reached.size() > b.reached.size();
                       // All came from outside, perhaps from one rank to another by an exchange
                       // that was not recorded, such as that of DDP: the earliest call is the
                       // source.
                       const RankTrace &left = traces_[a.trace], &right = traces_[b.trace];
                       return left.from_outside && right.from_outside && left.first < right.first;
                     });
    return std::move(found_);
  }

 private:
  // Finds the ranks that gave wrong numbers to the exchange `key`, with which the first wrong
  // number of trace `t` came.
  void FindGivers(size_t t, std::string_view key, RankHop* hop, RankOrigin* place) {
    std::vector<int32_t> absent = Participants(key);
    const bool first_of_hop = hop->from.empty();
    for (const Member& m : exchanges_[key]) {
      const RankTrace& other = traces_[m.trace];
      absent.erase(std::remove(absent.begin(), absent.end(), other.rank), absent.end());
      if (m.trace == t) continue;
      const ExchangeCall& given = other.exchanges[m.exchange];
      if (given.gives_wrong) {
        givers_[t].push_back(m.trace);
        if (first_of_hop && hop->from.empty()) {
          hop->name = given.name, hop->source_line = given.source_line;
        }
        InsertSorted(&hop->from, other.rank);
      } else if (given.gives_unknown) {
        InsertSorted(&place->not_known, other.rank);
      }
    }
    for (const int32_t rank : absent) InsertSorted(&place->not_known, rank);
  }

  // Fills origin->reached: the ranks that got wrong numbers from the origin, directly or through
  // other ranks.
  void Reach(RankOrigin* origin) const {
    std::set<size_t> from{origin->trace};
    for (bool grown = true; grown;) {
      grown = false;
      for (size_t t = 0; t < traces_.size(); ++t) {
        if (from.contains(t)) continue;
        const bool reached = std::any_of(givers_[t].begin(), givers_[t].end(),
                                         [&](size_t giver) { return from.contains(giver); });
        if (reached) from.insert(t), grown = true;
      }
    }
    from.erase(origin->trace);
    for (const size_t t : from) InsertSorted(&origin->reached, traces_[t].rank);
  }

  std::span<const RankTrace> traces_;
  Exchanges exchanges_;
  std::vector<std::vector<size_t>> givers_;  // for each trace: who gave it its first wrong number
  RankOrigins found_;
};

}  // namespace

RankOrigins FindOrigins(std::span<const RankTrace> traces) { return Search(traces).Run(); }

std::string RankList(std::span<const int32_t> ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += text.empty() ? "" : ", ";
    text +=
        last > i + 1 ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    if (last == i + 1) text += fmt::format(", {}", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace msprobe::compare
