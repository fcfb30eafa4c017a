#include "engine/compare/layouts/other_layout.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/compare/align/align.h"
#include "engine/compare/layouts/joined_dump.h"
#include "engine/compare/layouts/joined_weights.h"
#include "engine/compare/layouts/whole_shape.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/measure/run_start.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/weights_file.h"

namespace msprobe::compare::layouts {
namespace {

// So many values must be divided in another way, and this share of those that both sides have: a
// single one is rather an error in a run of the same layout.
constexpr int64_t kFewest = 2;
constexpr double kShareOfWeights = 0.05, kShareOfValues = 0.02;

bool IsEnough(int64_t otherwise, int64_t all, double share) {
  return otherwise >= kFewest && static_cast<double>(otherwise) >= share * static_cast<double>(all);
}

// Whether one extent is a multiple of the other by a number of ranks, wherever two shapes differ.
bool MayBePartsOfOneWhole(Shape a, Shape b, int64_t ranks) {
  const std::span<const int64_t> x = a.extents(), y = b.extents();
  if (!a.known() || !b.known() || x.size() != y.size()) return false;
  bool differ = false;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t large = std::max(x[d], y[d]), small = std::min(x[d], y[d]);
    if (large == small) continue;
    if (small <= 0 || large % small != 0 || ranks % (large / small) != 0) return false;
    differ = true;
  }
  return differ;
}

bool IsForwardTensor(const Dump& dump, int32_t leaf) {
  return dump.leaves[leaf].kind == LeafKind::kTensor &&
         dump.records[dump.leaves[leaf].record].direction == Direction::kForward;
}

// Of the forward values that two dumps have in common: how many may be parts of one whole, of other
// shapes.
bool HaveOtherParts(const Dump& target, const Dump& golden, int64_t ranks) {
  int64_t all = 0, otherwise = 0;
  for (const Row& row : AlignDumps(target, golden, CompareOptions()).rows) {
    if (row.target < 0 || row.golden < 0 || !IsForwardTensor(target, row.target) ||
        !IsForwardTensor(golden, row.golden))
      continue;
    ++all;
    otherwise += MayBePartsOfOneWhole(target.leaves[row.target].shape,
                                      golden.leaves[row.golden].shape, ranks);
  }
  return IsEnough(otherwise, all, kShareOfValues);
}

// Whether the stages of two pipelines take turns in another way: a rank sends and receives in
// another order.
bool HaveOtherSchedules(const Dump& target, const Dump& golden) {
  const auto transfers_of = [](const Dump& dump) {
    std::vector<std::pair<bool, int32_t>> transfers;  // whether it sends, and to whom
    for (const Record& record : dump.records) {
      const std::optional<Exchange> exchange = ExchangeOf(dump, record);
      if (!exchange || !IsPointToPoint(*exchange)) continue;
      for (const Exchange::Part& part : exchange->parts)
        transfers.emplace_back(part.sends, part.peer);
      if (exchange->parts.empty())
        transfers.emplace_back(exchange->role == ProcessGroup::Role::kSource, exchange->peer);
    }
    return transfers;
  };
  auto a = transfers_of(target), b = transfers_of(golden);
  if (a == b) return false;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

Result<std::vector<RankRun>> ReadRuns(std::span<const std::string> paths) {
  ReadOptions options;
  options.tensor_folder = "";
  std::vector<RankRun> runs;
  for (const std::string& path : paths) {
    MSPROBE_ASSIGN_OR_RETURN(Dump dump, dump::ReadDump(path, nullptr, options));
    runs.push_back({.rank = static_cast<int32_t>(runs.size()),
                    .dump = std::make_shared<const Dump>(std::move(dump))});
  }
  return runs;
}

// The same with what all ranks hold: the parts must fill one whole.
bool FillOneWhole(std::span<const RankRun> target, std::span<const RankRun> golden) {
  const Dump none;
  JoinedDump a(target, JoinCalls(target), none, ""), b(golden, JoinCalls(golden), none, "");
  const LayoutFacts of_target(target), of_golden(golden);
  int64_t otherwise = 0, filled = 0;
  for (const Row& row : AlignDumps(a.dump(), b.dump(), CompareOptions()).rows) {
    if (row.target < 0 || row.golden < 0 || !IsForwardTensor(a.dump(), row.target) ||
        !IsForwardTensor(b.dump(), row.golden) ||
        a.dump().leaves[row.target].shape == b.dump().leaves[row.golden].shape)
      continue;
    ++otherwise;
    filled += WholeOf(of_target.Summarize(a.values()[row.target]),
                      of_golden.Summarize(b.values()[row.golden]), {})
                  .known;
  }
  return filled >= kFewest && 2 * filled >= otherwise;
}

}  // namespace

Result<bool> AreOtherLayouts(std::span<const std::string> target,
                             std::span<const std::string> golden) {
  const size_t ranks = target.size();
  if (ranks < 2 || golden.size() != ranks) return false;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<RankRun> first, ReadRuns(target.first(1)));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<RankRun> other, ReadRuns(golden.first(1)));
  const Dump &a = *first[0].dump, &b = *other[0].dump;
  if (ProcessesOf(a) != ranks || ProcessesOf(b) != ranks) return false;
  const DividedWeights weights = CompareDivisions(target, golden);
  if (IsEnough(weights.otherwise, weights.all, kShareOfWeights)) return true;
  if (HaveOtherSchedules(a, b)) return true;
  if (!HaveOtherParts(a, b, static_cast<int64_t>(ranks))) return false;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<RankRun> all, ReadRuns(target));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<RankRun> others, ReadRuns(golden));
  return FillOneWhole(all, others);
}

}  // namespace msprobe::compare::layouts
