#include "engine/compare/measure/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/base/messages/message.h"
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

Message CompareWeights(const Dump& target, const Dump& golden) {
  if (target.weights.empty() || golden.weights.empty()) return {};
  // Wrappers such as DistributedDataParallel put their part in front of each name.
  std::string room;
  const auto name_of = [&](const Weight& weight) {
    return std::string(WithoutWrappers(weight.name, &room));
  };
  std::unordered_map<std::string, const Weight*> expected;  // those without a partner so far
  for (const Weight& weight : golden.weights) expected.emplace(name_of(weight), &weight);
  int64_t same = 0, other = 0, unread = 0, alone = 0;
  std::string first;
  Message only;  // the first weight that differs; the first one on one side only
  for (const Weight& weight : target.weights) {
    const auto found = expected.find(name_of(weight));
    if (found == expected.end()) {
      if (alone++ == 0) only = "{} of the target"_t(weight.name);
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
      only = "{} of the golden"_t(weight.name);
  }
  if (same + other + unread == 0) return "weights that have no name in common"_t;
  if (same + other == 0) return "weights that could not be read ({})"_t(unread);
  std::vector<Message> about;
  about.push_back(other == 0 ? Message(std::to_string(same))
                             : "{} of {} differ, first {}"_t(other, same + other, first));
  if (alone > 0) about.push_back("{} on one side only, first {}"_t(alone, only));
  if (unread > 0) about.push_back("{} not readable"_t(unread));
  return (other == 0 ? "the same weights ({})"_t
                     : "other weights ({})"_t)(Message::Joined(std::move(about), ", "));
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

struct GoldenContents {
  explicit GoldenContents(const Dump& golden) {
    for (const Leaf& leaf : golden.leaves) {
      all.Insert(leaf.fingerprint);
      if (leaf.slot == Slot::kOutput) made.Insert(leaf.fingerprint);
    }
    for (const Weight& weight : golden.weights) all.Insert(weight.fingerprint);
  }

  FingerprintSet all, made;
};

// A sentence on the outside data (outside_data.h) of both runs.
Message CompareData(const Comparison& c) {
  FingerprintSet same, rounded;
  std::optional<GoldenContents> golden;  // once it is asked for
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
    // A weight is no data. What the golden has elsewhere, the target passes to another call: the
    // data are the same. What the golden computes, the target computes in code that is not
    // recorded.
    if (!differs || IsWeightArgument(c, leaf)) return true;
    if (!golden) golden.emplace(c.golden);
    if (!golden->all.Has(leaf.fingerprint) &&
        !golden->made.Has(c.golden.leaves[c.rows[row].golden].fingerprint))
      other = leaf.name, is_data = row < data_end;
    return other.empty();
  });
  if (!other.empty()) {
    return is_data ? "other data ({} differs)"_t(other)
                   : "other data, or a value of unrecorded code ({} differs)"_t(other);
  }
  const size_t count = same.size() + rounded.size();
  if (count == 0) return {};
  std::vector<Message> about = {count == 1 ? "1 tensor from outside"_t
                                           : "{} tensors from outside"_t(count)};
  if (c.first.pair >= 0) {
    about[0] = count == 1 ? "1 tensor from outside up to the divergence"_t
                          : "{} tensors from outside up to the divergence"_t(count);
  }
  if (rounded.size() > 0) about.push_back("{} rounded or reordered"_t(rounded.size()));
  return "the same data ({})"_t(Message::Joined(std::move(about), ", "));
}

// A sentence on the dtypes of both runs; "" when they are the same.
Message ComparePrecision(const Comparison& c) {
  if (c.coarse_row == UINT32_MAX) return {};
  const Row& row = c.rows[c.coarse_row];
  const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
  const bool is_target = RoundingOf(target.dtype).epsilon > RoundingOf(golden.dtype).epsilon;
  return "the {} computes in {} where the {} has {}, from {} on: floats from there are judged by "
         "{}"_t(is_target ? "target"_t : "golden"_t,
                RoundingOf((is_target ? target : golden).dtype).name,
                is_target ? "golden"_t : "target"_t,
                RoundingOf((is_target ? golden : target).dtype).name,
                c.target.records[target.record].name, RoundingOf(c.coarse_dtype).name);
}

// Where the precision policies of the runs differ, and what they are; "" when they are the same.
Message ComparePolicyStart(const Comparison& c) {
  const int32_t first = ComparePolicies(c).first;
  if (first < 0) return {};
  const Record& record = c.target.records[c.pairs[first].target];
  const std::string line =
      record.stack < 0 ? "" : dump::UserSourceLine(c.target.stacks[record.stack]);
  const Message begin = "this begins at {}"_t(record.name);
  return Message::Joined({DescribePolicies(c, first), Message::Joined({begin, line}, ": ")}, "; ");
}

// A sentence on dumps of two steps, which hardly anybody wants to compare; "" for others.
Message CompareStepNumbers(const Dump& target, const Dump& golden) {
  const int32_t t = dump::StepInPath(target.path), g = dump::StepInPath(golden.path);
  if (t < 0 || g < 0 || t == g) return {};
  return "step {} of the target is compared with step {} of the golden"_t(t, g);
}

// A sentence on two ranks of runs that are divided in other ways; "" where both have as many ranks.
Message CompareLayouts(const Dump& target, const Dump& golden) {
  const size_t t = ProcessesOf(target), g = ProcessesOf(golden);
  const bool joined = !target.ranks.empty() || !golden.ranks.empty();
  if (joined || t == 0 || g == 0 || t == g) return {};
  return "the target ran on {}, the golden on {}: ranks of other layouts hold other parts of "
         "values, and what differs may be no error; record both runs on the same number of ranks"_t(
             t == 1 ? "1 rank"_t : "{} ranks"_t(t), g);
}

std::vector<Message> CompareSettings(const Dump& target, const Dump& golden) {
  std::vector<Message> settings;
  for (const auto& [key, value] : target.provenance) {
    const auto other = std::find_if(golden.provenance.begin(), golden.provenance.end(),
                                    [&name = key](const auto& pair) { return pair.first == name; });
    if (other == golden.provenance.end() || other->second == value) continue;
    if (key == "random_state") {
      settings.push_back("the random state differs"_t);
    } else if (key == dump::kParallel) {
      settings.push_back("the processes are arranged in other ways"_t);
    } else {
      // The first ten digits of a git commit are enough.
      const size_t digits = key == "git" ? 10 : std::string::npos;
      settings.push_back("{} {} in the target, {} in the golden"_t(
          key, value.substr(0, digits), other->second.substr(0, digits)));
    }
  }
  return settings;
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
  const Comparison& c = *comparison;
  std::vector<Message> settings = {ComparePrecision(c), ComparePolicyStart(c), DescribeModes(c)};
  for (Message& each : CompareSettings(c.target, c.golden)) settings.push_back(std::move(each));
  comparison->run_start = {
      .mistake = Message::Joined(
          {CompareStepNumbers(c.target, c.golden), CompareLayouts(c.target, c.golden)}, "; "),
      .weights = CompareWeights(c.target, c.golden),
      .data = CompareData(c),
      .settings = Message::Joined(std::move(settings), "; ")};
}

}  // namespace msprobe::compare
