#include "engine/compare/model/precision_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/compare/model/rounding.h"
#include "engine/model/precision_text.h"

namespace msprobe::compare {
namespace {

using Texts = std::pair<std::string_view, std::string_view>;  // of the target, of the golden

// Whether one text of a run always stands opposite one of the other.
bool OneToOne(const std::set<Texts>& texts) {
  std::map<std::string_view, std::string_view> mine, others;
  return std::all_of(texts.begin(), texts.end(), [&](const Texts& pair) {
    return mine.try_emplace(pair.first, pair.second).first->second == pair.second &&
           others.try_emplace(pair.second, pair.first).first->second == pair.first;
  });
}

bool MakesOtherDType(const Comparison& c, const RecordPair& pair) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    if (t.slot == Slot::kOutput && t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor &&
        t.dtype != g.dtype && RoundingOf(t.dtype).kind == NumberKind::kFloat)
      return true;
  }
  return false;
}

Policies::Kind KindOf(const std::set<Texts>& texts) {
  using Kind = Policies::Kind;
  std::set<Texts> defaults;
  bool same = true, target_casts = false, golden_casts = false;
  for (const auto& [target, golden] : texts) {
    same &= target == golden;
    target_casts |= !AutocastsIn(target).empty();
    golden_casts |= !AutocastsIn(golden).empty();
    defaults.emplace(DefaultDTypeIn(target), DefaultDTypeIn(golden));
  }
  if (same) return Kind::kSame;
  const bool whole = OneToOne(texts) || (target_casts != golden_casts && OneToOne(defaults));
  return whole ? Kind::kWhole : Kind::kInPlaces;
}

// "cpu bfloat16", "cpu bfloat16 and cuda float16".
Message Names(const std::vector<Autocast>& on) {
  std::vector<Message> names;
  for (const Autocast& each : on) names.emplace_back(fmt::format("{} {}", each.device, each.dtype));
  return Message::Joined(std::move(names), " and ");
}

}  // namespace

Policies ComparePolicies(const Comparison& c) {
  Policies found;
  if (c.target.PrecisionOf(-1).empty() || c.golden.PrecisionOf(-1).empty()) return found;
  std::set<Texts> texts;
  Texts last;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const RecordPair& pair = c.pairs[p];
    if (!pair.matched() || c.target.records[pair.target].direction != Direction::kForward) continue;
    const Texts both = {c.target.PrecisionOf(pair.target), c.golden.PrecisionOf(pair.golden)};
    if (both != last) texts.insert(both);
    last = both;
    if (found.first < 0 && both.first != both.second && MakesOtherDType(c, pair))
      found.first = static_cast<int32_t>(p);
  }
  found.kind = KindOf(texts);
  return found;
}

Message DescribePolicies(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched() || c.target.records[pair.target].direction != Direction::kForward) return {};
  const std::string_view mine = c.target.PrecisionOf(pair.target),
                         other = c.golden.PrecisionOf(pair.golden);
  if (mine == other || mine.empty() || other.empty() || !MakesOtherDType(c, pair)) return {};
  if (DefaultDTypeIn(mine) != DefaultDTypeIn(other))
    return "the default dtype is {} in the target, {} in the golden"_t(DefaultDTypeIn(mine),
                                                                       DefaultDTypeIn(other));
  const std::vector<Autocast> here = AutocastsIn(mine), there = AutocastsIn(other);
  if (there.empty()) return "autocast is on in the target ({}), off in the golden"_t(Names(here));
  if (here.empty()) return "autocast is off in the target, on in the golden ({})"_t(Names(there));
  return "autocast is on in the target ({}), in the golden with another dtype ({})"_t(Names(here),
                                                                                      Names(there));
}

}  // namespace msprobe::compare
