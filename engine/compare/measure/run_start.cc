#include "engine/compare/measure/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "engine/compare/measure/outside_data.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/precision_policies.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/read/source_line.h"
#include "engine/dump/read/step_in_path.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/model/names.h"
#include "engine/model/parameter_names.h"

namespace msprobe::compare {
namespace {

std::string CompareWeights(const Dump& target, const Dump& golden) {
  if (target.weights.empty() || golden.weights.empty()) return {};
  // Wrappers such as DistributedDataParallel put their part in front of each name.
  std::string room;
  const auto name_of = [&](const Weight& weight) {
    return std::string(WithoutWrappers(weight.name, &room));
  };
  std::unordered_map<std::string, const Weight*> expected;  // those without a partner so far
  for (const Weight& weight : golden.weights) expected.emplace(name_of(weight), &weight);
  int64_t same = 0, other = 0, unread = 0, alone = 0;
  std::string first, only;  // the first weight that differs; the first one on one side only
  for (const Weight& weight : target.weights) {
    const auto found = expected.find(name_of(weight));
    if (found == expected.end()) {
      if (alone++ == 0) only = fmt::format("{} of the target", weight.name);
      continue;
    }
    const std::string_view fingerprint = found->second->fingerprint;
    expected.erase(found);
    if (weight.fingerprint.empty() || fingerprint.empty()) {
      ++unread;
    } else if (weight.fingerprint == fingerprint) {
      ++same;
    } else if (other++ == 0) {
      first = weight.name;
    }
  }
  alone += static_cast<int64_t>(expected.size());
  for (const Weight& weight : golden.weights) {
    if (only.empty() && expected.contains(name_of(weight)))
      only = fmt::format("{} of the golden", weight.name);
  }
  if (same + other + unread == 0) return "weights that have no name in common";
  if (same + other == 0) return fmt::format("weights that could not be read ({})", unread);
  const std::string rest = fmt::format(
      "{}{}", alone > 0 ? fmt::format(", {} on one side only, first {}", alone, only) : "",
      unread > 0 ? fmt::format(", {} not readable", unread) : "");
  if (other == 0) return fmt::format("the same weights ({}{})", same, rest);
  return fmt::format("other weights ({} of {} differ, first {}{})", other, same + other, first,
                     rest);
}

// The row after the first call of the target that made a tensor. What stands in front of it follows
// from no recorded call; later tensors may, through code that was not recorded.
uint32_t EndOfFirstMaker(const Comparison& c) {
  for (const RecordPair& pair : c.pairs) {
    for (uint32_t r = pair.first_row; r < pair.first_row + pair.row_count; ++r) {
      const int32_t leaf = c.rows[r].target;
      if (leaf >= 0 && c.target.leaves[leaf].slot == Slot::kOutput &&
          c.target.leaves[leaf].kind == LeafKind::kTensor)
        return pair.first_row + pair.row_count;
    }
  }
  return static_cast<uint32_t>(c.rows.size());
}

// Whether the function calls the argument a weight.
bool IsWeightArgument(const Comparison& c, const Leaf& leaf) {
  const Record& record = c.target.records[leaf.record];
  const std::string_view place = LeafPlace(leaf, record);
  const int64_t index = leaf.slot == Slot::kInput ? NumberAfter(place, "") : -1;
  const std::string name =
      index < 0 ? std::string(place) : ParameterName(c.target, record, static_cast<size_t>(index));
  return name == "weight" || name == "bias";
}

// A sentence on the outside data (outside_data.h) of both runs.
std::string CompareData(const Comparison& c) {
  FingerprintSet same, rounded, of_golden, made_in_golden;
  for (const Leaf& leaf : c.golden.leaves) {
    of_golden.Insert(leaf.fingerprint);
    if (leaf.slot == Slot::kOutput) made_in_golden.Insert(leaf.fingerprint);
  }
  for (const Weight& weight : c.golden.weights) of_golden.Insert(weight.fingerprint);
  std::string_view other;
  const uint32_t data_end = EndOfFirstMaker(c);
  bool is_data = true;
  const size_t end = c.first.pair < 0 ? c.pairs.size() : static_cast<size_t>(c.first.pair) + 1;
  ForEachOutsideRow(c, end, [&](uint32_t row) {
    const Leaf& leaf = c.target.leaves[c.rows[row].target];
    const RowVerdict verdict = c.measures[row].verdict;
    const bool differs =
        verdict == RowVerdict::kDiffers || c.measures[row].reason == Reason::kWithoutEffect;
    if (verdict == RowVerdict::kEqual) same.Insert(leaf.fingerprint);
    if (verdict == RowVerdict::kNoise) rounded.Insert(leaf.fingerprint);
    // A weight is no data. What the golden has elsewhere, the target passes to another call: the data
    // are the same. What the golden computes, the target computes in code that is not recorded.
    if (differs && !IsWeightArgument(c, leaf) && !of_golden.Has(leaf.fingerprint) &&
        !made_in_golden.Has(c.golden.leaves[c.rows[row].golden].fingerprint))
      other = leaf.name, is_data = row < data_end;
    return other.empty();
  });
  if (!other.empty()) {
    return is_data ? fmt::format("other data ({} differs)", other)
                   : fmt::format("other data, or a value of unrecorded code ({} differs)", other);
  }
  const size_t count = same.size() + rounded.size();
  if (count == 0) return {};
  return fmt::format(
      "the same data ({} tensor{} from outside{}{})", count, count == 1 ? "" : "s",
      c.first.pair < 0 ? "" : " up to the divergence",
      rounded.size() == 0 ? "" : fmt::format(", {} rounded or reordered", rounded.size()));
}

// A sentence on the dtypes of both runs; "" when they are the same.
std::string ComparePrecision(const Comparison& c) {
  if (c.coarse_row == UINT32_MAX) return {};
  const Row& row = c.rows[c.coarse_row];
  const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
  const bool is_target = RoundingOf(target.dtype).epsilon > RoundingOf(golden.dtype).epsilon;
  return fmt::format(
      "the {} computes in {} where the {} has {}, from {} on: floats from there are judged by {}",
      is_target ? "target" : "golden", RoundingOf((is_target ? target : golden).dtype).name,
      is_target ? "golden" : "target", RoundingOf((is_target ? golden : target).dtype).name,
      c.target.records[target.record].name, RoundingOf(c.coarse_dtype).name);
}

// Where the precision policies of the runs differ, and what they are; "" when they are the same.
std::string ComparePolicyStart(const Comparison& c) {
  const int32_t first = ComparePolicies(c).first;
  if (first < 0) return {};
  const Record& record = c.target.records[c.pairs[first].target];
  std::string text = fmt::format("{}; this begins at {}", DescribePolicies(c, first), record.name);
  if (record.stack < 0) return text;
  const std::string line = dump::UserSourceLine(c.target.stacks[record.stack]);
  return line.empty() ? text : fmt::format("{}: {}", text, line);
}

// A sentence on dumps of two steps, which hardly anybody wants to compare; "" for others.
std::string CompareStepNumbers(const Dump& target, const Dump& golden) {
  const int32_t t = dump::StepInPath(target.path), g = dump::StepInPath(golden.path);
  if (t < 0 || g < 0 || t == g) return "";
  return fmt::format("step {} of the target is compared with step {} of the golden", t, g);
}

// A sentence on two ranks of runs that are divided in other ways; "" where both have as many ranks.
std::string CompareLayouts(const Dump& target, const Dump& golden) {
  const size_t t = ProcessesOf(target), g = ProcessesOf(golden);
  const bool joined = !target.ranks.empty() || !golden.ranks.empty();
  if (joined || t == 0 || g == 0 || t == g) return "";
  return fmt::format(
      "the target ran on {} rank{}, the golden on {}: ranks of other layouts hold other parts of "
      "values, and what differs may be no error; record both runs on the same number of ranks",
      t, t == 1 ? "" : "s", g);
}

std::string CompareSettings(const Dump& target, const Dump& golden, std::string text) {
  for (const auto& [key, value] : target.provenance) {
    const auto other = std::find_if(golden.provenance.begin(), golden.provenance.end(),
                                    [&name = key](const auto& pair) { return pair.first == name; });
    if (other == golden.provenance.end() || other->second == value) continue;
    if (!text.empty()) text += "; ";
    if (key == "random_state") {
      text += "the random state differs";
    } else if (key == dump::kParallel) {
      text += "the processes are arranged in other ways";
    } else {
      // The first ten digits of a git commit are enough.
      const size_t digits = key == "git" ? 10 : std::string::npos;
      text += fmt::format("{} {} in the target, {} in the golden", key, value.substr(0, digits),
                          other->second.substr(0, digits));
    }
  }
  return text;
}

std::string Joined(std::string text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "; ";
  return text.append(more);
}

}  // namespace

size_t ProcessesOf(const Dump& dump) {
  const Result<dump::ParallelLayout> layout = dump::ParallelLayoutOf(dump);
  if (!layout.ok()) return 0;
  size_t processes = 0;
  for (const dump::ParallelLayout::Group& group : layout->groups)
    processes = std::max(processes, group.ranks.size());
  // A run of one process has no group, and a folder without a number.
  const bool is_alone = dump.path.ends_with("/rank/dump.json") && !dump.provenance.empty();
  return processes == 0 && is_alone ? 1 : processes;
}

void CompareRunStarts(Comparison* comparison) {
  comparison->run_start = {
      .mistake = Joined(CompareStepNumbers(comparison->target, comparison->golden),
                        CompareLayouts(comparison->target, comparison->golden)),
      .weights = CompareWeights(comparison->target, comparison->golden),
      .data = CompareData(*comparison),
      .settings = CompareSettings(
          comparison->target, comparison->golden,
          Joined(Joined(ComparePrecision(*comparison), ComparePolicyStart(*comparison)),
                 DescribeModes(*comparison)))};
}

}  // namespace msprobe::compare
