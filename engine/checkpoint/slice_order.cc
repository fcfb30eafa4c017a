#include "engine/checkpoint/slice_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace msprobe::checkpoint {
namespace {

using Kind = OrderPattern::Kind;
using Prints = std::span<const uint64_t>;

std::vector<int64_t> DivisorsOf(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// Where slice i of an interleaved arrangement stands when part follows part. Of a group of
// first_part + parts - 1 blocks the first ones belong to the first part.
int64_t SeparatedPlace(const OrderPattern& p, int64_t i) {
  const int64_t in_group = p.first_part + p.parts - 1;
  const int64_t period = p.groups * in_group * p.block;
  const int64_t base = i / period * period, at = i % period;
  const int64_t c = at % p.block, block = at / p.block;
  const int64_t group = block / in_group, j = block % in_group;
  const int64_t place = j < p.first_part ? group * p.first_part + j
                                         : p.groups * j + group;  // j - first_part parts before it
  return base + place * p.block + c;
}

class Search {
 public:
  Search(Prints target, Prints golden)
      : t_(target), g_(golden), n_(static_cast<int64_t>(target.size())), budget_(64 * n_ + 4096) {}

  std::optional<SliceOrder> Run() {
    for (const int64_t parts : {3, 2, 4, 5, 6, 7, 8}) {
      if (EqualParts(parts)) return Found();
    }
    if (SharedKeys() || HalvesOfHeads() || Reversed() || Rolled()) return Found();
    return General();
  }

 private:
  // Whether slice i of the target is slice place(i) of the golden, for all i.
  template <typename Place>
  bool Fits(Place place) {
    bool moves = false;
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t from = place(i);
      if (--budget_ < 0 || t_[i] != g_[from]) return false;
      moves = moves || from != i;
    }
    return moves;
  }
  // Both directions of an interleaving.
  bool FitsParts(OrderPattern p) {
    if (Fits([&](int64_t i) { return SeparatedPlace(p, i); })) {
      p.kind = p.parts == p.groups && p.first_part == 1 ? Kind::kExchanged : Kind::kInterleaved;
      return Take(p);
    }
    for (int64_t i = 0; i < n_; ++i) {
      if (--budget_ < 0 || t_[SeparatedPlace(p, i)] != g_[i]) return false;
    }
    back_.resize(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) back_[SeparatedPlace(p, i)] = i;
    p.kind = Kind::kSeparated;
    return Take(p);
  }
  bool Take(const OrderPattern& p) {
    pattern_ = p;
    return true;
  }

  // Parts of one size: q, k, v; gate, up; the four gates of an LSTM.
  bool EqualParts(int64_t parts) {
    if (n_ % parts != 0) return false;
    for (const int64_t block : DivisorsOf(n_ / parts)) {
      const int64_t groups = n_ / parts / block;
      if (groups > 1 && FitsParts({.parts = parts, .groups = groups, .block = block})) return true;
    }
    return false;
  }
  // Queries that share keys and values: a group has several heads of queries, one of keys, one of
  // values.
  bool SharedKeys() {
    for (const int64_t block : DivisorsOf(n_)) {
      for (const int64_t groups : DivisorsOf(n_ / block)) {
        const int64_t in_group = n_ / block / groups;
        if (groups < 2 || in_group < 4) continue;
        if (FitsParts({.parts = 3, .groups = groups, .block = block, .first_part = in_group - 2}))
          return true;
      }
    }
    return false;
  }
  // Two spellings of rotary embeddings: in each head the halves, or pairs.
  bool HalvesOfHeads() {
    for (const int64_t head : DivisorsOf(n_)) {
      if (head < 4 || head % 2 != 0 || head == n_) continue;
      if (FitsParts({.parts = 2, .groups = head / 2, .block = 1, .within = n_ / head})) return true;
    }
    return false;
  }
  bool Reversed() {
    return n_ > 2 && Fits([&](int64_t i) { return n_ - 1 - i; }) && Take({.kind = Kind::kReversed});
  }
  bool Rolled() {
    constexpr int kMost = 64;  // slices that may be the first one
    int looks = 0;
    for (int64_t shift = 1; shift < n_ && looks < kMost; ++shift) {
      if (g_[shift] != t_[0]) continue;
      ++looks;
      if (Fits([&](int64_t i) { return (i + shift) % n_; }))
        return Take({.kind = Kind::kRolled, .parts = 2 * shift == n_ ? 2 : 1, .shift = shift});
    }
    return false;
  }

  SliceOrder Found() const {
    SliceOrder order{.from = std::vector<int64_t>(static_cast<size_t>(n_)), .pattern = pattern_};
    for (int64_t i = 0; i < n_; ++i) {
      order.from[i] = pattern_.kind == Kind::kSeparated  ? back_[i]
                      : pattern_.kind == Kind::kReversed ? n_ - 1 - i
                      : pattern_.kind == Kind::kRolled   ? (i + pattern_.shift) % n_
                                                         : SeparatedPlace(pattern_, i);
      order.moved += order.from[i] != i;
    }
    return order;
  }

  // Slices that are there several times stay where they are, as far as they can.
  std::optional<SliceOrder> General() const {
    std::unordered_map<uint64_t, std::vector<int64_t>> places;
    for (int64_t i = n_; i-- > 0;) {
      if (t_[i] != g_[i]) places[g_[i]].push_back(i);
    }
    SliceOrder order{.from = std::vector<int64_t>(static_cast<size_t>(n_))};
    for (int64_t i = 0; i < n_; ++i) {
      order.from[i] = i;
      if (t_[i] == g_[i]) continue;
      const auto found = places.find(t_[i]);
      if (found == places.end() || found->second.empty()) return std::nullopt;
      order.from[i] = found->second.back();
      found->second.pop_back();
      ++order.moved;
    }
    if (order.moved == 0) return std::nullopt;
    int64_t block = n_;
    for (int64_t i = 1; i < n_; ++i) {
      if (order.from[i] != order.from[i - 1] + 1)
        block = std::gcd(std::gcd(block, i), order.from[i]);
    }
    block = std::gcd(block, order.from[0]);
    order.pattern = {.kind = block > 1 ? Kind::kBlocks : Kind::kIrregular, .block = block};
    return order;
  }

  const Prints t_, g_;
  const int64_t n_;
  int64_t budget_;  // comparisons that are left; bounds the time where many slices are equal
  OrderPattern pattern_;
  std::vector<int64_t> back_;
};

Message Counted(int64_t n, const SliceUnit& unit) {
  return "{} {}"_t(n, n == 1 ? unit.one : unit.many);
}

Message DescribeParts(const OrderPattern& p, const SliceUnit& unit, bool is_attention) {
  const bool separated = p.kind == Kind::kSeparated;
  const auto of = [&](const Message& together, const Message& apart) {
    return "{} in place of {}"_t(separated ? apart : together, separated ? together : apart);
  };
  if (p.parts == 3 && is_attention && p.within == 1) {
    if (p.first_part > 1)
      return of("{} heads of q, then k, v of each group together"_t(p.first_part),
                "all q, all k, all v"_t);
    return of("q, k, v of each head together"_t, "all q, all k, all v"_t);
  }
  if (p.within > 1)
    return "in each of {} groups of {}: {}"_t(
        p.within, Counted(p.parts * p.groups * p.block, unit),
        of("the two halves interleaved"_t, "one half after the other"_t));
  if (p.first_part > 1)
    return of("groups of {} blocks of {}, interleaved"_t(p.first_part + 2, Counted(p.block, unit)),
              "three parts one after the other"_t);
  return of("{} parts interleaved, {} at a time"_t(p.parts, Counted(p.block, unit)),
            "one part after the other"_t);
}

}  // namespace

std::optional<SliceOrder> OrderOf(Prints target, Prints golden) {
  if (target.size() != golden.size() || target.size() < 2) return std::nullopt;
  std::vector<uint64_t> a(target.begin(), target.end()), b(golden.begin(), golden.end());
  if (a == b) return std::nullopt;
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  if (a != b) return std::nullopt;
  return Search(target, golden).Run();
}

Message DescribeOrder(const OrderPattern& p, const SliceUnit& unit, bool is_attention) {
  switch (p.kind) {
    case Kind::kInterleaved:
    case Kind::kSeparated:
      return DescribeParts(p, unit, is_attention);
    case Kind::kExchanged:
      return "{} x {} blocks of {}, transposed"_t(p.parts, p.parts, Counted(p.block, unit));
    case Kind::kReversed:
      return "reversed"_t;
    case Kind::kRolled:
      return p.parts == 2 ? "the two halves are exchanged"_t
                          : "rolled, beginning with {} {}"_t(unit.one, p.shift);
    case Kind::kBlocks:
      return "blocks of {} (such as heads) are moved"_t(Counted(p.block, unit));
    case Kind::kIrregular:
      break;
  }
  return "in no regular order"_t;
}

}  // namespace msprobe::checkpoint
