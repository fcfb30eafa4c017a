#include "engine/compare/explain/unmatched_calls.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/compiled_code.h"

namespace msprobe::compare {

int32_t UnmatchedArgument(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  // The plain argument of a row, when only the target (`target`) or only the golden has it.
  const auto alone = [&](uint32_t row, bool target) -> const Leaf* {
    const Row& r = c.rows[row];
    const int32_t here = target ? r.target : r.golden, there = target ? r.golden : r.target;
    if (here < 0 || there >= 0 || c.measures[row].reason == Reason::kOneFramework) return nullptr;
    const Leaf& leaf = (target ? c.target : c.golden).leaves[here];
    const bool goes_in = leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg;
    return goes_in && leaf.kind == LeafKind::kScalar ? &leaf : nullptr;
  };
  const uint32_t end = pair.first_row + pair.row_count;
  for (uint32_t row = pair.first_row; row < end; ++row) {
    for (const bool target : {true, false}) {
      const Leaf* leaf = alone(row, target);
      if (leaf == nullptr) continue;
      bool passed_elsewhere = false;  // the other side passes it too, as another argument
      for (uint32_t other = pair.first_row; other < end; ++other) {
        const Leaf* o = alone(other, !target);
        passed_elsewhere = passed_elsewhere || (o != nullptr && o->value == leaf->value);
      }
      if (!passed_elsewhere) return static_cast<int32_t>(row);
    }
  }
  return -1;
}

std::vector<int32_t> DifferingArguments(const Comparison& c, int32_t p) {
  std::vector<int32_t> rows;
  const RecordPair& pair = c.pairs[p];
  if (IsOptimizerCall(RecordOf(c, p).api)) return rows;  // its numbers are those of a schedule
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0 || c.measures[i].verdict != RowVerdict::kDiffers) continue;
    const Leaf& leaf = c.target.leaves[row.target];
    const bool goes_in = leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg;
    const int32_t at = static_cast<int32_t>(i);
    if (goes_in && IsPlain(c, at)) rows.push_back(at);
  }
  if (rows.empty()) {
    if (const int32_t alone = UnmatchedArgument(c, p); alone >= 0) rows.push_back(alone);
  }
  return rows;
}

namespace {

// "Torch.norm.0.forward (train.py:72 in <module>: ...)"
Message NameAndPlace(const Comparison& c, int32_t pair) {
  const std::string line = SourceLineOf(c, pair);
  return line.empty() ? Message(EntryName(c, pair)) : "{} ({})"_t(EntryName(c, pair), line);
}

// The first plain argument that is not the same, also where no result depends on it; -1: there is
// none.
int32_t OtherArgument(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Measure& m = c.measures[i];
    const int32_t leaf = c.rows[i].target;
    const bool differs = m.verdict == RowVerdict::kDiffers || m.reason == Reason::kWithoutEffect;
    if (leaf >= 0 && differs && c.target.leaves[leaf].slot != Slot::kOutput &&
        IsPlain(c, static_cast<int32_t>(i)))
      return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace

Message DescribeDifferingArguments(const Comparison& c) {
  int64_t count = 0;
  int32_t first = -1, row = -1;
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (!c.pairs[p].matched()) continue;
    const int32_t other = OtherArgument(c, p);
    if (other >= 0 && count++ == 0) first = p, row = other;
  }
  if (count == 0) return {};
  const Message call = NameAndPlace(c, first);
  return Message::Joined(
      {count == 1 ? "{} was made differently"_t(call)
                  : "{} calls were made differently, the first is {}"_t(count, call),
       DescribeRow(c, row)},
      ": ");
}

Message DescribeUnmatchedCalls(const Comparison& c) {
  std::vector<Message> parts;
  for (const bool target : {true, false}) {
    if (!(target ? c.golden : c.target).complete) continue;
    int64_t count = 0;
    int32_t first = -1;
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if ((target ? c.pairs[p].golden : c.pairs[p].target) >= 0) continue;
      if (c.IsCompiled(static_cast<int32_t>(p))) continue;
      if (count++ == 0) first = static_cast<int32_t>(p);
    }
    if (count == 0) continue;
    const Message side = target ? "target"_t : "golden"_t, call = NameAndPlace(c, first);
    parts.push_back(count == 1
                        ? "one call is only in the {}, {}"_t(side, call)
                        : "{} calls are only in the {}, the first is {}"_t(count, side, call));
  }
  for (Message& compiled : DescribeCompiledCalls(c)) parts.push_back(std::move(compiled));
  return Message::Joined(std::move(parts), "; ");
}

}  // namespace msprobe::compare
