#include "engine/compare/ranks/exchange_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace msprobe::compare {
namespace {

// Indices into `calls`, those of each api in the order of their numbers, which is the order in
// which the program made them. They are recorded in another order: each one when its result is
// complete.
std::vector<size_t> OrderOfCalls(const Dump& dump, const std::vector<NumberedExchange>& calls) {
  const auto record = [&](size_t i) -> const Record& { return dump.records[calls[i].record]; };
  std::map<std::string_view, std::vector<size_t>> places;
  for (size_t i = 0; i < calls.size(); ++i) places[record(i).api].push_back(i);
  std::vector<size_t> order(calls.size());
  for (const auto& [api, at] : places) {
    std::vector<size_t> by_call = at;
    std::stable_sort(by_call.begin(), by_call.end(),
                     [&](size_t a, size_t b) { return record(a).call < record(b).call; });
    for (size_t i = 0; i < at.size(); ++i) order[at[i]] = by_call[i];
  }
  return order;
}

class Numbering {
 public:
  explicit Numbering(int32_t rank) : rank_(rank) {}

  void Name(NumberedExchange* call) {
    const Exchange& e = call->exchange;
    const int32_t self = e.rank >= 0 ? e.rank : rank_;
    for (const Exchange::Part& part : e.parts)
      call->keys.push_back(PointToPoint(self, part.peer, part.sends));
    if (!e.parts.empty()) return;
    call->keys.push_back(IsPointToPoint(e)
                             ? PointToPoint(self, e.peer, e.role == ProcessGroup::Role::kSource)
                             : Numbered(fmt::format("{} {}", e.kind, e.ranks)));
  }

 private:
  std::string PointToPoint(int32_t self, int32_t peer, bool sends) {
    return Numbered(fmt::format("{} to {}", sends ? self : peer, sends ? peer : self));
  }
  std::string Numbered(std::string what) {
    const int64_t number = counts_[what]++;
    return fmt::format("{} #{}", what, number);
  }

  int32_t rank_;
  std::map<std::string, int64_t> counts_;
};

}  // namespace

std::vector<NumberedExchange> NumberExchanges(const Dump& dump, int32_t rank) {
  std::vector<NumberedExchange> calls;
  for (size_t r = 0; r < dump.records.size(); ++r) {
    if (std::optional<Exchange> e = ExchangeOf(dump, dump.records[r]))
      calls.push_back({static_cast<int32_t>(r), *std::move(e), {}});
  }
  Numbering numbering(rank);
  for (const size_t i : OrderOfCalls(dump, calls)) numbering.Name(&calls[i]);
  return calls;
}

}  // namespace msprobe::compare
