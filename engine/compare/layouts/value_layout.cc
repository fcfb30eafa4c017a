#include "engine/compare/layouts/value_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::layouts {
namespace {

using Places = std::vector<std::vector<int32_t>>;

// The parts of each content, in the order in which the contents first occur.
Places Classes(std::span<const ValuePart> parts, const LayoutFacts& facts) {
  Places classes;
  std::map<uint64_t, size_t> number;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Leaf& leaf = facts.LeafOf(parts[i]);
    const auto [at, is_new] =
        number.emplace(ContentKey(leaf) ^ leaf.shape.key_without_ones(), classes.size());
    if (is_new) classes.emplace_back();
    classes[at->second].push_back(static_cast<int32_t>(i));
  }
  return classes;
}

// The one of each class.
Places Firsts(const Places& classes) {
  Places firsts;
  for (const std::vector<int32_t>& of : classes) firsts.push_back({of.front()});
  return firsts;
}

// Whether elements and extents of all ranks can be added up; those of a damaged file may be too
// many.
bool CanBeAdded(Shape shape) {
  constexpr int64_t kMost = int64_t{1} << 48;
  const std::span<const int64_t> extents = shape.extents();
  return shape.elements() >= 0 && shape.elements() <= kMost &&
         std::all_of(extents.begin(), extents.end(),
                     [](int64_t extent) { return extent <= kMost; });
}

bool AddsUp(std::string_view kind) {
  return kind.starts_with("all_reduce") || kind.starts_with("reduce_scatter") ||
         kind.starts_with("reduce");
}

// The largest or smallest of the ranks is no sum of them.
bool IsSum(const Dump& dump, const Record& record) {
  const std::span<const Leaf> leaves = dump.LeavesOf(record);
  return std::none_of(leaves.begin(), leaves.end(), [](const Leaf& leaf) {
    const std::string_view text = leaf.value;
    return leaf.kind == LeafKind::kScalar &&
           (text.find("MAX") != text.npos || text.find("MIN") != text.npos ||
            text.find("PRODUCT") != text.npos || text == "max" || text == "min");
  });
}

}  // namespace

LayoutFacts::LayoutFacts(std::span<const RankRun> runs) : runs_(runs), reductions_(runs.size()) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const Dump& dump = *runs[i].dump;
    for (const Record& record : dump.records) {
      const std::optional<Exchange> exchange = ExchangeOf(dump, record);
      if (!exchange || !AddsUp(exchange->kind) || !IsSum(dump, record)) continue;
      for (const Leaf& leaf : dump.LeavesOf(record)) {
        if (PartOf(*exchange, record, leaf) != ExchangePart::kGiven) continue;
        if (const uint64_t content = ContentKey(leaf); content != 0)
          reductions_[i].emplace(content, exchange->ranks);
      }
    }
  }
}

// The parts that exchanges add up with each other; none: not all parts are given to one.
Places LayoutFacts::Units(std::span<const ValuePart> parts) const {
  Places units;
  std::map<std::string_view, size_t> number;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Reductions& reductions = reductions_[parts[i].run];
    const auto found = reductions.find(ContentKey(LeafOf(parts[i])));
    if (found == reductions.end()) return {};
    const auto [at, is_new] = number.emplace(found->second, units.size());
    if (is_new) units.emplace_back();
    units[at->second].push_back(static_cast<int32_t>(i));
  }
  // Groups that add up the same contents make the same sum.
  Places different;
  std::set<std::vector<uint64_t>> seen;
  for (std::vector<int32_t>& unit : units) {
    std::vector<uint64_t> contents;
    for (const int32_t i : unit) contents.push_back(ContentKey(LeafOf(parts[i])));
    std::sort(contents.begin(), contents.end());
    if (seen.insert(std::move(contents)).second) different.push_back(std::move(unit));
  }
  return different;
}

const LeafShard* LayoutFacts::ShardOf(const ValuePart& part) const {
  const std::vector<LeafShard>& of_rank = runs_[part.run].dump->shards;
  const auto found = std::lower_bound(
      of_rank.begin(), of_rank.end(), part.leaf,
      [](const LeafShard& item, int32_t leaf) { return static_cast<int64_t>(item.leaf) < leaf; });
  const bool here = found != of_rank.end() && static_cast<int32_t>(found->leaf) == part.leaf;
  return here ? &*found : nullptr;
}

HeldParts LayoutFacts::Summarize(std::span<const ValuePart> parts) const {
  HeldParts held{.shape = LeafOf(parts.front()).shape};
  for (size_t i = 0; i < parts.size(); ++i) {
    const Shape shape = LeafOf(parts[i]).shape;
    held.uniform &= shape == held.shape;
    held.bounded &= CanBeAdded(shape);
    const LeafShard* shard = ShardOf(parts[i]);
    const Shape declared = shard == nullptr ? Shape() : shapes_.Of(shard->global_shape);
    if (i > 0 && !(declared == held.declared)) return {.shape = held.shape, .bounded = false};
    held.declared = declared;
  }
  if (!held.bounded) return held;
  const Places classes = Classes(parts, *this);
  held.contents = static_cast<int64_t>(classes.size());
  held.units = static_cast<int64_t>(Units(parts).size());
  if (held.uniform || !held.shape.known()) return held;
  const std::span<const int64_t> first = held.shape.extents();
  std::vector<int64_t> sum(first.size(), 0);
  std::set<size_t> differ;
  for (const std::vector<int32_t>& of : classes) {
    const std::span<const int64_t> own = LeafOf(parts[of.front()]).shape.extents();
    if (own.size() != first.size()) return held;
    for (size_t d = 0; d < own.size(); ++d) {
      sum[d] += own[d];
      if (own[d] != first[d]) differ.insert(d);
    }
  }
  if (differ.size() != 1) return held;
  held.side_by_side.assign(first.begin(), first.end());
  held.side_by_side[*differ.begin()] = sum[*differ.begin()];
  return held;
}

// A DTensor says itself how it lies.
bool LayoutFacts::OfDTensor(std::span<const ValuePart> parts, Shape whole,
                            ValueLayout* layout) const {
  using Kind = ValueLayout::Kind;
  bool sum = false, shards = false, strided = false, copies = false;
  for (const ValuePart& part : parts) {
    const LeafShard* found = ShardOf(part);
    if (found == nullptr) return false;
    sum |= found->placements.find("Partial") != found->placements.npos;
    shards |= found->placements.find("Shard") != found->placements.npos;
    copies |= found->placements.find("Replicate") != found->placements.npos;
    strided |= found->placements.find("split_factor") != found->placements.npos;
  }
  const Places classes = Classes(parts, *this);
  if (sum && !shards) {
    layout->kind = Kind::kSum;
    layout->places.emplace_back();
    // Along a dimension of the mesh that has copies each addend counts once.
    for (size_t i = 0; !copies && i < parts.size(); ++i)
      layout->places.front().push_back(static_cast<int32_t>(i));
    for (size_t i = 0; copies && i < classes.size(); ++i)
      layout->places.front().push_back(classes[i].front());
    return true;
  }
  if (sum || !shards) return false;
  layout->kind = Kind::kShards;
  layout->places = Firsts(classes);
  layout->ordered = !strided;
  Arrange(parts, whole, layout);
  return layout->kind == Kind::kShards;
}

// The dimension along which the parts stand side by side. If the parts do not fill the whole, they
// are no shards of it.
void LayoutFacts::Arrange(std::span<const ValuePart> parts, Shape whole,
                          ValueLayout* layout) const {
  const std::span<const int64_t> all = whole.extents();
  int64_t elements = 0;
  std::set<size_t> differ;
  std::map<size_t, int64_t> extents;
  bool one_rank = whole.known();
  for (const std::vector<int32_t>& place : layout->places) {
    const Shape shape = LeafOf(parts[place.front()]).shape;
    elements += shape.elements();
    one_rank &= shape.known() && shape.extents().size() == all.size();
    for (size_t d = 0; one_rank && d < all.size(); ++d) {
      if (shape.extents()[d] != all[d]) differ.insert(d);
      extents[d] += shape.extents()[d];
    }
  }
  if (elements != whole.elements()) layout->kind = ValueLayout::Kind::kUnknown;
  if (!one_rank || differ.size() != 1 || !layout->ordered) return;
  const size_t d = *differ.begin();
  if (extents[d] == all[d]) layout->dimension = static_cast<int32_t>(d);
}

// Shards of which the last one has more than the golden has: a vocabulary that the ranks divide
// evenly.
bool LayoutFacts::IsPadded(std::span<const ValuePart> parts, Shape whole,
                           ValueLayout* layout) const {
  const std::span<const int64_t> all = whole.extents();
  std::vector<int64_t> extents(all.begin(), all.end());
  std::optional<size_t> differs;
  int64_t sum = 0, last = 0;
  layout->places = Firsts(Classes(parts, *this));
  for (const std::vector<int32_t>& place : layout->places) {
    const Shape shape = LeafOf(parts[place.front()]).shape;
    if (!whole.known() || !shape.known() || shape.extents().size() != all.size()) return false;
    for (size_t d = 0; d < all.size(); ++d) {
      if (shape.extents()[d] == all[d]) continue;
      if (differs && *differs != d) return false;
      differs = d;
    }
    if (!differs) return false;
    last = shape.extents()[*differs];
    sum += last;
  }
  if (!differs || layout->places.size() < 2 || sum <= all[*differs] || sum - all[*differs] >= last)
    return false;
  extents[*differs] = sum;
  layout->kind = ValueLayout::Kind::kShards;
  layout->dimension = static_cast<int32_t>(*differs);
  layout->padded = std::move(extents);
  return true;
}

ValueLayout LayoutFacts::Of(std::span<const ValuePart> parts, const Question& question) const {
  using Kind = ValueLayout::Kind;
  ValueLayout layout;
  const int64_t elements = question.whole.elements();
  const Places classes = Classes(parts, *this);
  if (elements <= 0) {
    if (classes.size() == 1) layout.kind = Kind::kWhole, layout.places = Firsts(classes);
    return layout;
  }
  const bool bounded = CanBeAdded(question.whole) &&
                       std::all_of(parts.begin(), parts.end(), [&](const ValuePart& part) {
                         return CanBeAdded(LeafOf(part).shape);
                       });
  if (!bounded) return layout;
  if (OfDTensor(parts, question.whole, &layout)) return layout;
  layout = {};
  int64_t sum = 0;
  bool full = true;
  for (const ValuePart& part : parts) {
    const int64_t own = LeafOf(part).shape.elements();
    sum += own;
    full &= own == elements;
  }
  const auto copies = static_cast<size_t>(sum / elements);
  if (full) {
    layout.places = Firsts(classes);
    layout.kind = Kind::kWhole;
    if (classes.size() == 1) return layout;
    if (Places units = Units(parts); units.size() == 1) {
      layout.kind = Kind::kSum;
      layout.places = std::move(units);
    } else if (question.averaged || question.added) {
      layout.kind = question.averaged ? Kind::kMean : Kind::kSum;
      layout.places.assign(1, {});
      for (const std::vector<int32_t>& of : classes) layout.places[0].push_back(of.front());
    } else {
      layout.kind = Kind::kDivergent;
      // One rank may have what the golden has: what the others have is wrong.
      const auto distance = [&](const std::vector<int32_t>& of) {
        return question.golden == nullptr
                   ? 0
                   : DistanceOfCopies(LeafOf(parts[of.front()]), *question.golden);
      };
      const auto farthest =
          std::max_element(classes.begin(), classes.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
      layout.places.assign(1, {farthest->front()});
    }
    return layout;
  }
  if (copies == 0 || sum % elements != 0)
    return IsPadded(parts, question.whole, &layout) ? layout : ValueLayout{};
  layout.kind = Kind::kShards;
  if (copies == 1) {
    layout.places.clear();
    for (size_t i = 0; i < parts.size(); ++i) layout.places.push_back({static_cast<int32_t>(i)});
  } else if (classes.size() <= parts.size() / copies) {
    layout.places = Firsts(classes);
  } else {
    layout.kind = Kind::kSum;
    layout.places = Units(parts);
  }
  if (layout.places.empty()) return {};
  Arrange(parts, question.whole, &layout);
  return layout.kind == Kind::kUnknown ? ValueLayout{} : layout;
}

double DistanceOfCopies(const Leaf& copy, const Leaf& golden) {
  if (ContentKey(copy) == ContentKey(golden)) return 0;
  const double size = std::max(std::abs(golden.max_value), std::abs(golden.min_value));
  const double ends = std::max(std::abs(copy.max_value - golden.max_value),
                               std::abs(copy.min_value - golden.min_value));
  const double norm = std::abs(copy.norm_value - golden.norm_value);
  const double apart = std::max(ends / size, norm / golden.norm_value);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

Message Describe(const ValueLayout& layout, std::span<const ValuePart> parts,
                 std::span<const RankRun> runs, bool adds_up) {
  using Kind = ValueLayout::Kind;
  std::set<int32_t> ranks;
  for (const ValuePart& part : parts) ranks.insert(runs[part.run].rank);
  const std::string all = fmt::format("{}", fmt::join(ranks, ", "));
  Message of = ranks.size() == 1 ? "rank {}"_t(all) : "ranks {}"_t(all);
  const int32_t first = runs[parts[layout.places[0][0]].run].rank;
  switch (layout.kind) {
    case Kind::kWhole:
      return ranks.size() == 1 ? "of {}"_t(std::move(of)) : "whole on {}"_t(std::move(of));
    case Kind::kShards:
      return layout.dimension < 0 ? "joined: shards of {}"_t(std::move(of))
                                  : "joined: Shard({}) of {}"_t(layout.dimension, std::move(of));
    case Kind::kSum:
      return layout.places.size() == 1 ? "joined: sum over {}"_t(std::move(of))
                                       : "joined: shards of sums over {}"_t(std::move(of));
    case Kind::kMean:
      return "joined: mean over {}"_t(std::move(of));
    case Kind::kDivergent:
      return adds_up ? "each rank has other elements, which add up to the golden's; those of rank "
                       "{} are compared"_t(first)
                     : "each rank has other elements; those of rank {} are compared"_t(first);
    case Kind::kUnknown:
      break;
  }
  return "nothing says how the parts of {} belong together; that of rank {} is compared"_t(
      std::move(of), first);
}

}  // namespace msprobe::compare::layouts
