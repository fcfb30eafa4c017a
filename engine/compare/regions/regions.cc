#include "engine/compare/regions/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
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

std::vector<Region> Rewrites(const Comparison& c) {
  std::vector<Region> regions;
  if (c.rewritten.empty()) return regions;
  const auto size = static_cast<int32_t>(c.pairs.size());
  Sets sets(c.pairs.size());
  for (int32_t p = 1; p < size; ++p) {
    if (c.IsRewritten(p) && c.IsRewritten(p - 1) &&
        RecordAt(c, p).direction == RecordAt(c, p - 1).direction)
      sets.Join(p, p - 1);
  }
  for (const bool target : {true, false}) {
    const Dump& dump = target ? c.target : c.golden;
    const ValueFlow flow(c, target, c.rewritten);
    for (int32_t p = 0; p < size; ++p) {
      const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
      if (!c.IsRewritten(p) || record < 0) continue;
      for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
        if (!IsTensorResult(leaf)) continue;
        for (const ValueUse& use : flow.UsesOf(leaf)) {
          if (c.IsRewritten(use.pair)) sets.Join(p, use.pair);
        }
      }
    }
  }
  std::vector<int32_t> region_of(c.pairs.size(), -1);
  for (int32_t p = 0; p < size; ++p) {
    if (!c.IsRewritten(p)) continue;
    int32_t& at = region_of[sets.Find(p)];
    if (at < 0) {
      at = static_cast<int32_t>(regions.size());
      regions.emplace_back();
    }
    AddPair(c, p, &regions[at]);
  }
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

}  // namespace

std::vector<Region> RegionsOf(const Comparison& c) {
  std::vector<Region> regions = Rewrites(c);
  if (c.first.pair < 0 || !DiffersInStructure(c, c.first.pair)) return regions;
  constexpr int32_t kMost = 1000;  // calls before and behind the first divergence
  const auto belongs = [&](int32_t p) {
    return p >= 0 && p < static_cast<int32_t>(c.pairs.size()) &&
           RecordAt(c, p).direction == RecordAt(c, c.first.pair).direction &&
           DiffersInStructure(c, p);
  };
  int32_t begin = c.first.pair, end = c.first.pair + 1;
  while (c.first.pair - begin < kMost && belongs(begin - 1)) --begin;
  while (end - c.first.pair < kMost && belongs(end)) ++end;
  Region wrong{.wrong = true};
  for (int32_t p = begin; p < end; ++p) AddPair(c, p, &wrong);
  regions.insert(regions.begin(), std::move(wrong));
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

std::string DescribeCalls(const Comparison& c, const Region& region, bool target) {
  constexpr int kMost = 6;
  std::string text;
  int shown = 0;
  int64_t more = 0;
  for (const int32_t p : region.pairs) {
    const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
    if (record < 0) continue;
    if (shown == kMost) {
      ++more;
      continue;
    }
    const Record& r = (target ? c.target : c.golden).records[record];
    text += fmt::format("{}{}{}", shown++ > 0 ? ", " : "", BaseApi(r.api),
                        r.direction == Direction::kBackward ? " (backward)" : "");
  }
  if (shown == 0) return "nothing";
  return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

std::string DescribeRewrites(const Comparison& c, const std::vector<Region>& regions) {
  constexpr size_t kMost = 3;
  std::map<std::string, int64_t> counts;
  int64_t rewrites = 0;
  std::vector<std::string> order;
  for (const Region& region : regions) {
    if (region.wrong) continue;
    ++rewrites;
    std::string text =
        fmt::format("{} for {}", DescribeCalls(c, region, true), DescribeCalls(c, region, false));
    if (counts[text]++ == 0) order.push_back(std::move(text));
  }
  if (rewrites == 0) return "";
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return counts[a] > counts[b]; });
  std::string text = fmt::format("{} rewrite{}: ", rewrites, rewrites == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    text += fmt::format("{}{}{}", i > 0 ? "; " : "", order[i],
                        counts[order[i]] > 1 ? fmt::format(" ({} times)", counts[order[i]]) : "");
  }
  if (order.size() > kMost) text += fmt::format("; {} other kinds", order.size() - kMost);
  return text;
}

std::string DescribeWrongRegion(const Comparison& c, const std::vector<Region>& regions) {
  if (regions.empty() || !regions[0].wrong || regions[0].pairs.size() < 2) return "";
  return fmt::format("the target calls {} where the golden calls {}",
                     DescribeCalls(c, regions[0], true), DescribeCalls(c, regions[0], false));
}

}  // namespace msprobe::compare
