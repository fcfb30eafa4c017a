#include "engine/compare/layouts/wrong_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "engine/compare/layouts/value_layout.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/kernels/diff.h"

namespace msprobe::compare::layouts {
namespace {

const Leaf& LeafOf(const Dump& joined, const JoinedLeaf::Part& part) {
  return joined.ranks[part.dump]->leaves[part.leaf];
}

constexpr double kNearCopy = 1e-4;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Of copies those that are not the golden's.
std::set<int32_t> OtherCopies(const Dump& joined, std::span<const JoinedLeaf::Part> parts,
                              const Leaf& golden) {
  std::set<int32_t> others;
  for (const JoinedLeaf::Part& part : parts) {
    const Leaf& leaf = LeafOf(joined, part);
    if (leaf.shape.elements() != golden.shape.elements()) return {};
    if (DistanceOfCopies(leaf, golden) > kNearCopy) others.insert(part.rank);
  }
  return others.size() < parts.size() ? others : std::set<int32_t>();
}

// Every element of a shard is one of the golden's: none is larger than the largest.
std::set<int32_t> Beyond(const Dump& joined, std::span<const JoinedLeaf::Part> parts,
                         const Leaf& golden) {
  constexpr double kRoundings = 64;
  const Rounding& rounding = RoundingOf(golden.dtype);
  const double size = std::max(std::abs(golden.max_value), std::abs(golden.min_value));
  const double slack = kRoundings * rounding.epsilon * size;
  std::set<int32_t> beyond;
  for (const JoinedLeaf::Part& part : parts) {
    const Leaf& leaf = LeafOf(joined, part);
    if (leaf.max_value > golden.max_value + slack || leaf.min_value < golden.min_value - slack)
      beyond.insert(part.rank);
  }
  return beyond;
}

// A sample of a tensor has another shape than the tensor.
bool IsWhole(const TensorView& view, const Leaf& leaf) {
  return std::ranges::equal(view.dims(), leaf.shape.extents());
}

// Where elements were stored: of shards those that are farther from their slice of the golden than
// others are from theirs, and than copies may be.
std::set<int32_t> OtherSlices(const Dump& joined, const JoinedLeaf& leaf, const Dump& whole,
                              const Leaf& golden) {
  constexpr double kFarther = 16;
  if (leaf.dimension < 0 || !dump::HasTensorData(golden)) return {};
  const auto elements = dump::ReadTensorData(whole, golden);
  if (!elements.ok()) return {};  // what is told of it elsewhere is told without ranks
  const TensorView all = elements->view();
  if (leaf.dimension >= all.ndim || !IsWhole(all, golden)) return {};
  std::map<int32_t, double> distance;
  for (const JoinedLeaf::Part& part : leaf.parts) {
    const Dump& rank = *joined.ranks[part.dump];
    if (part.begin < 0 || !dump::HasTensorData(rank.leaves[part.leaf])) return {};
    const auto shard = dump::ReadTensorData(rank, rank.leaves[part.leaf]);
    if (!shard.ok() || shard->view().ndim != all.ndim ||
        !IsWhole(shard->view(), rank.leaves[part.leaf]))
      return {};
    TensorView slice = all;
    slice.shape = shard->view().shape;
    for (int d = 0; d < all.ndim; ++d) {
      const int64_t begin = d == leaf.dimension ? part.begin : 0;
      if (slice.shape[d] < 0 || begin > all.shape[d] - slice.shape[d]) return {};
    }
    slice.data =
        static_cast<const uint8_t*>(all.data) +
        part.begin * all.strides[leaf.dimension] * static_cast<int64_t>(DTypeSize(all.dtype));
    const auto diff = kernels::ComputeDiff(shard->view(), slice);
    if (!diff.ok()) return {};
    distance[part.rank] =
        diff->nonfinite_mismatch > 0 || std::isnan(diff->relative_l2) ? kInf : diff->relative_l2;
  }
  double nearest = kInf;
  for (const auto& [rank, d] : distance) nearest = std::min(nearest, d);
  std::set<int32_t> others;
  for (const auto& [rank, d] : distance) {
    if (d > std::max(kNearCopy, kFarther * nearest)) others.insert(rank);
  }
  return others;
}

}  // namespace

std::vector<int32_t> WrongRanks(const Comparison& c) {
  if (c.first.pair < 0 || c.target.ranks.empty()) return {};
  const RecordPair& pair = c.pairs[c.first.pair];
  if (pair.target < 0) return {};
  const auto& some = c.target.ranks_of_records;
  const auto made_by =
      std::lower_bound(some.begin(), some.end(), static_cast<uint32_t>(pair.target),
                       [](const auto& item, uint32_t record) { return item.first < record; });
  if (made_by != some.end() && made_by->first == static_cast<uint32_t>(pair.target))
    return made_by->second;
  // An offset of the rank is an argument of its layout: what is made with it differs rightly.
  for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
    if (c.measures[row].reason == Reason::kValueDiffers) return {};
  }
  std::set<int32_t> ranks;
  size_t all = 0;
  for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
    const Row& r = c.rows[row];
    if (r.target < 0 || r.golden < 0 || c.measures[row].verdict != RowVerdict::kDiffers) continue;
    const JoinedLeaf* joined = c.target.JoinedOf(r.target);
    if (joined == nullptr || joined->sum) continue;
    const Leaf& golden = c.golden.leaves[r.golden];
    std::set<int32_t> found = OtherCopies(c.target, joined->parts, golden);
    const bool shards =
        joined->parts.size() > 1 &&
        LeafOf(c.target, joined->parts[0]).shape.elements() < golden.shape.elements();
    if (found.empty() && shards) found = OtherSlices(c.target, *joined, c.golden, golden);
    if (found.empty() && shards) found = Beyond(c.target, joined->parts, golden);
    all = std::max(all, joined->parts.size());
    ranks.insert(found.begin(), found.end());
  }
  if (ranks.size() == all) return {};  // nothing tells them apart
  return {ranks.begin(), ranks.end()};
}

Message SayRanks(const Comparison& c) {
  const int32_t leaf = c.first.row < 0 ? -1 : c.rows[c.first.row].target;
  const JoinedLeaf* joined = leaf < 0 ? nullptr : c.target.JoinedOf(leaf);
  const int32_t other = c.first.row < 0 ? -1 : c.rows[c.first.row].golden;
  const JoinedLeaf* golden = other < 0 ? nullptr : c.golden.JoinedOf(other);
  std::vector<Message> parts;
  if (joined != nullptr) parts.push_back(*joined->how);
  if (golden != nullptr) parts.push_back("golden: {}"_t(*golden->how));
  if (!c.first.ranks.empty()) {
    const std::string ranks = fmt::format("{}", fmt::join(c.first.ranks, ", "));
    parts.push_back(c.first.ranks.size() == 1 ? "rank {} is wrong"_t(ranks)
                                              : "ranks {} are wrong"_t(ranks));
  }
  return Message::Joined(std::move(parts), "; ");
}

}  // namespace msprobe::compare::layouts
