#include "engine/compare/regions/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {
namespace {

const Record& RecordAt(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  return pair.target >= 0 ? c.target.records[pair.target] : c.golden.records[pair.golden];
}

// Sets of pairs that are joined one by one.
class Sets {
 public:
  explicit Sets(size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }
  int32_t Find(int32_t p) {
    while (parent_[p] != p) p = parent_[p] = parent_[parent_[p]];
    return p;
  }
  // The smaller index stands for the set.
  void Join(int32_t a, int32_t b) {
    a = Find(a), b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<int32_t> parent_;
};

void AddPair(const Comparison& c, int32_t p, Region* region) {
  region->pairs.push_back(p);
  region->target_calls += c.pairs[p].target >= 0;
  region->golden_calls += c.pairs[p].golden >= 0;
}

// Whether a call is a part of a rewrite.
bool IsPart(const Comparison& c, int32_t p) { return c.IsRewritten(p) && !c.IsCompiled(p); }

// Puts the calls of rewrites together. A call that only one run has follows the call before it, and
// the two halves of a rewrite may be far from each other in the list of pairs.
class RewriteSets {
 public:
  explicit RewriteSets(const Comparison& c)
      : c_(c), sets_(c.pairs.size()), flows_(FlowsOf(c, c.rewritten)) {}

  Sets Join() {
    JoinNeighbours();
    JoinAlongValues();
    JoinBackward();
    return std::move(sets_);
  }

 private:
  int32_t size() const { return static_cast<int32_t>(c_.pairs.size()); }

  void JoinNeighbours() {
    for (int32_t p = 1; p < size(); ++p) {
      if (IsPart(c_, p) && IsPart(c_, p - 1) &&
          RecordAt(c_, p).direction == RecordAt(c_, p - 1).direction)
        sets_.Join(p, p - 1);
    }
  }

  // Calls use(pair, use of one of its results) for the calls of rewrites.
  template <typename Use>
  void EachUse(bool target, Use use) const {
    const Dump& dump = target ? c_.target : c_.golden;
    for (int32_t p = 0; p < size(); ++p) {
      const int32_t record = target ? c_.pairs[p].target : c_.pairs[p].golden;
      if (!IsPart(c_, p) || record < 0) continue;
      for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
        if (!IsTensorResult(leaf)) continue;
        for (const ValueUse& found : flows_[target ? 0 : 1].UsesOf(leaf)) use(p, found);
      }
    }
  }

  // Joins the maker of a value with the calls of rewrites that take it; and where a call of both
  // runs takes a value that the target's half made, that half with the one that made its partner in
  // the golden.
  void JoinAlongValues() {
    std::vector<int32_t> makers(c_.rows.size(), -1);  // the target's last call that made a row
    EachUse(true, [&](int32_t p, const ValueUse& use) {
      if (IsPart(c_, use.pair)) {
        sets_.Join(p, use.pair);
      } else if (c_.pairs[use.pair].matched()) {
        makers[use.row] = p;
      }
    });
    EachUse(false, [&](int32_t p, const ValueUse& use) {
      if (IsPart(c_, use.pair)) {
        sets_.Join(p, use.pair);
      } else if (makers[use.row] >= 0) {
        sets_.Join(p, makers[use.row]);
      }
    });
  }

  // The backward calls of one rewrite: autograd adds their gradients up in no recorded call.
  void JoinBackward() {
    std::unordered_map<int32_t, int32_t> backward;  // rewrite of the forward calls -> backward call
    for (size_t p = 0; p < c_.forward_of.size(); ++p) {
      const auto pair = static_cast<int32_t>(p);
      const int32_t forward = c_.forward_of[p];
      if (forward < 0 || !IsPart(c_, forward) || !IsPart(c_, pair)) continue;
      sets_.Join(backward.emplace(sets_.Find(forward), pair).first->second, pair);
    }
  }

  const Comparison& c_;
  Sets sets_;
  const ValueFlows flows_;
};

// A call is no rewrite of itself: calls that both runs make, with other values in between, stand
// beside a rewrite or a sum, and none of them was written anew.
bool IsRewrite(const Comparison& c, const Region& region) {
  return std::any_of(region.pairs.begin(), region.pairs.end(), [&](int32_t p) {
    const RecordPair& pair = c.pairs[p];
    return !pair.matched() ||
           BaseApi(c.target.records[pair.target].api) != BaseApi(c.golden.records[pair.golden].api);
  });
}

std::vector<Region> Rewrites(const Comparison& c) {
  std::vector<Region> regions;
  if (c.rewritten.empty()) return regions;
  Sets sets = RewriteSets(c).Join();
  std::vector<int32_t> region_of(c.pairs.size(), -1);
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (!IsPart(c, p)) continue;
    int32_t& at = region_of[sets.Find(p)];
    if (at < 0) {
      at = static_cast<int32_t>(regions.size());
      regions.emplace_back();
    }
    AddPair(c, p, &regions[at]);
  }
  std::erase_if(regions, [&](const Region& region) { return !IsRewrite(c, region); });
  return regions;
}

// Those of Comparison::stated_regions, in the order of their numbers.
std::vector<Region> Stated(const Comparison& c) {
  std::vector<Region> regions;
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    const uint32_t number = c.stated_regions[p];
    if (number == 0) continue;
    if (regions.size() < number) regions.resize(number);
    AddPair(c, p, &regions[number - 1]);
    regions[number - 1].wrong = !c.IsRewritten(p);
  }
  std::erase_if(regions, [](const Region& region) { return region.pairs.empty(); });
  return regions;
}

// Whether the calls of a pair differ in structure, and are no part of a rewrite.
bool DiffersInStructure(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  if (c.IsRewritten(p)) return false;
  if (!pair.matched()) return true;
  const Record &t = c.target.records[pair.target], &g = c.golden.records[pair.golden];
  if (t.is_module || g.is_module) return false;
  if (BaseApi(t.api) != BaseApi(g.api)) return true;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (c.measures[i].reason == Reason::kShapeDiffers) return true;
  }
  return false;
}

// The region at the first divergence: the stretch of calls around it that differ in structure, and
// the stretch of the other run's calls that make what is taken in the same places.
class WrongRegion {
 public:
  explicit WrongRegion(const Comparison& c)
      : c_(c), direction_(RecordAt(c, c.first.pair).direction), inside_(c.pairs.size(), 0) {}

  Region Find() {
    AddStretch(c_.first.pair);
    for (const bool target : {true, false}) AddOtherHalf(target);
    Region wrong{.wrong = true};
    for (size_t p = 0; p < inside_.size(); ++p) {
      if (inside_[p]) AddPair(c_, static_cast<int32_t>(p), &wrong);
    }
    return wrong;
  }

 private:
  bool Belongs(int32_t p) const {
    return p >= 0 && p < static_cast<int32_t>(c_.pairs.size()) &&
           RecordAt(c_, p).direction == direction_ && DiffersInStructure(c_, p);
  }

  bool IsAlone(int32_t p) const {
    return p >= 0 && p < static_cast<int32_t>(c_.pairs.size()) && !c_.pairs[p].matched() &&
           !c_.IsRewritten(p);
  }

  void AddStretch(int32_t p) {
    constexpr int32_t kMost = 1000;  // calls before and behind
    inside_[p] = 1;
    // The calls of one run alone may stand between the forward and the backward calls of the other.
    for (const int32_t by : {-1, 1}) {
      for (int32_t q = p + by; std::abs(q - p) < kMost && (Belongs(q) || IsAlone(q)); q += by)
        inside_[q] |= Belongs(q);
    }
  }

  // Calls of the other run whose results are taken where those of the region's calls of this run
  // are.
  void AddOtherHalf(bool target) {
    const ValueFlow flow(c_, target, inside_);
    const Dump &dump = target ? c_.target : c_.golden, &other = target ? c_.golden : c_.target;
    std::unordered_set<uint64_t> wanted;  // contents of the other run
    for (size_t p = 0; p < inside_.size(); ++p) {
      const int32_t record = target ? c_.pairs[p].target : c_.pairs[p].golden;
      if (!inside_[p] || record < 0) continue;
      for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
        if (!IsTensorResult(leaf)) continue;
        for (const ValueUse& use : flow.UsesOf(leaf)) {
          const int32_t partner = target ? c_.rows[use.row].golden : c_.rows[use.row].target;
          if (!inside_[use.pair] && partner >= 0) wanted.insert(ContentKey(other.leaves[partner]));
        }
      }
    }
    wanted.erase(0);
    for (int32_t p = 0; !wanted.empty() && p < static_cast<int32_t>(inside_.size()); ++p) {
      const int32_t record = target ? c_.pairs[p].golden : c_.pairs[p].target;
      if (inside_[p] || record < 0 || !Belongs(p)) continue;
      const auto leaves = other.LeavesOf(other.records[record]);
      if (std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
            return IsTensorResult(leaf) && wanted.count(ContentKey(leaf)) > 0;
          }))
        AddStretch(p);
    }
  }

  const Comparison& c_;
  const Direction direction_;
  std::vector<char> inside_;  // for each pair
};

}  // namespace

std::vector<Region> RegionsOf(const Comparison& c) {
  if (!c.stated_regions.empty()) return Stated(c);
  std::vector<Region> regions = Rewrites(c);
  if (c.first.pair >= 0 && DiffersInStructure(c, c.first.pair))
    regions.insert(regions.begin(), WrongRegion(c).Find());
  return regions;
}

std::vector<std::string_view> NamesOf(const Comparison& c, const Region& region, bool target,
                                      size_t most) {
  std::vector<std::string_view> names;
  for (const int32_t p : region.pairs) {
    const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
    if (record >= 0 && names.size() < most)
      names.push_back((target ? c.target : c.golden).records[record].name);
  }
  return names;
}

Message DescribeCalls(const Comparison& c, const Region& region, bool target) {
  constexpr size_t kMost = 6;
  std::vector<Message> calls;
  int64_t more = 0;
  for (const int32_t p : region.pairs) {
    const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
    if (record < 0) continue;
    if (calls.size() == kMost) {
      ++more;
      continue;
    }
    const Record& r = (target ? c.target : c.golden).records[record];
    calls.push_back(r.direction == Direction::kBackward ? "{} (backward)"_t(BaseApi(r.api))
                                                        : Message(BaseApi(r.api)));
  }
  // The run may compute the same in code that is not recorded.
  if (calls.empty()) return "no recorded call"_t;
  Message text = Message::Joined(std::move(calls), ", ");
  return more > 0 ? "{} and {} more"_t(std::move(text), more) : text;
}

Message DescribeRewrites(const Comparison& c, const std::vector<Region>& regions) {
  constexpr size_t kMost = 3;
  struct Kind {
    Message text;
    int64_t count = 0;
  };
  std::vector<Kind> kinds;
  std::unordered_map<std::string, size_t> kind_of;  // by the English text
  int64_t rewrites = 0;
  for (const Region& region : regions) {
    if (region.wrong) continue;
    const Message of_target = DescribeCalls(c, region, true);
    const Message of_golden = DescribeCalls(c, region, false);
    if (c.decided && (region.target_calls == 0 || region.golden_calls == 0)) continue;
    if (of_target == of_golden) continue;  // "mul for mul" says nothing
    ++rewrites;
    Message text = "{} for {}"_t(of_target, of_golden);
    const auto [at, is_new] = kind_of.emplace(text.English(), kinds.size());
    if (is_new) kinds.push_back({std::move(text)});
    ++kinds[at->second].count;
  }
  if (rewrites == 0) return {};
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.count > b.count; });
  std::vector<Message> parts;
  for (size_t i = 0; i < std::min(kinds.size(), kMost); ++i) {
    Kind& kind = kinds[i];
    parts.push_back(kind.count > 1 ? "{} ({} times)"_t(std::move(kind.text), kind.count)
                                   : std::move(kind.text));
  }
  if (kinds.size() > kMost) parts.push_back("{} other kinds"_t(kinds.size() - kMost));
  return Message::Joined({rewrites == 1 ? "1 rewrite"_t : "{} rewrites"_t(rewrites),
                          Message::Joined(std::move(parts), "; ")},
                         ": ");
}

Message DescribeWrongRegion(const Comparison& c, const std::vector<Region>& regions) {
  if (regions.empty() || !regions[0].wrong || regions[0].pairs.size() < 2) return {};
  if (regions[0].target_calls == 0 || regions[0].golden_calls == 0) {
    const bool target = regions[0].target_calls > 0;
    return "only the {} records calls here: {}"_t(target ? "target"_t : "golden"_t,
                                                  DescribeCalls(c, regions[0], target));
  }
  const Message of_target = DescribeCalls(c, regions[0], true);
  const Message of_golden = DescribeCalls(c, regions[0], false);
  if (of_target == of_golden) return {};
  return "the target calls {} where the golden calls {}"_t(of_target, of_golden);
}

}  // namespace msprobe::compare
