#include "engine/compare/explain/optimizer_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/update_pattern.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/optimizer_groups.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kState = "input.state.";

// "param_groups.1.lr" -> "lr of group 1"; of the first group "lr".
Message NameOf(std::string_view label) {
  if (label.starts_with("input.")) label.remove_prefix(6);
  const GroupSetting setting = GroupSettingOf(label);
  if (setting.group < 0) return std::string(label);
  return setting.group == 0 ? std::string(setting.name)
                            : "{} of group {}"_t(setting.name, setting.group);
}

// The plain settings of one group by their names: "lr" -> "0.1".
std::map<std::string_view, std::string> SettingsOf(const Dump& dump, const Record& record,
                                                   int32_t group) {
  std::map<std::string_view, std::string> settings;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput ||
        IsImplementation(record, leaf))
      continue;
    const GroupSetting setting = GroupSettingOf(LeafPlace(leaf, record));
    if (setting.group == group) settings.emplace(setting.name, PlainValue(leaf));
  }
  return settings;
}

// Settings of parameters that one run has put into another group than the other: "weight_decay of
// norm.weight and 9 more".
void AddMovedParameters(const Comparison& c, const RecordPair& pair,
                        std::vector<HyperParameter>* found) {
  const Record &t = c.target.records[pair.target], &g = c.golden.records[pair.golden];
  const OptimizerGroups target(c.target, t), golden(c.golden, g);
  if (target.empty() || golden.empty()) return;
  const std::vector<int32_t> partners = target.PartnersIn(golden);
  std::map<std::pair<int32_t, int32_t>, std::vector<std::string_view>> moved;
  for (const auto& [name, group] : target.group_of()) {
    const auto other = golden.group_of().find(name);
    if (other == golden.group_of().end()) continue;
    if (partners[static_cast<size_t>(group)] != other->second)
      moved[{group, other->second}].push_back(name);
  }
  for (auto& [groups, names] : moved) {
    std::sort(names.begin(), names.end());
    const auto ours = SettingsOf(c.target, t, groups.first),
               theirs = SettingsOf(c.golden, g, groups.second);
    for (const auto& [setting, value] : ours) {
      const auto other = theirs.find(setting);
      if (other == theirs.end() || other->second == value) continue;
      const Message moved_names =
          names.size() > 1 ? "{} and {} more"_t(names[0], names.size() - 1) : Message(names[0]);
      found->push_back({"{} of {}"_t(setting, moved_names), value, other->second});
    }
  }
}

}  // namespace

bool IsOptimizerState(const Record& record, const Leaf& leaf) {
  if (!IsOptimizerCall(record.api)) return false;
  const std::string_view name = leaf.name.view();
  return name.size() > record.name.size() &&
         name.substr(record.name.size() + 1).starts_with(kState);
}

std::vector<HyperParameter> DifferingHyperParameters(const Comparison& c, int32_t p) {
  std::vector<HyperParameter> found;
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched() || !IsOptimizerCall(c.target.records[pair.target].api)) return found;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
    const bool one_side = row.target < 0 || row.golden < 0;
    if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput ||
        IsOptimizerState(RecordOf(c, p), leaf) || c.measures[i].reason == Reason::kOtherForm ||
        c.measures[i].reason == Reason::kOneFramework ||
        (!one_side && c.measures[i].verdict != RowVerdict::kDiffers))
      continue;
    const auto value = [&](const Dump& dump, int32_t index) {
      return index < 0 ? std::string() : PlainValue(dump.leaves[index]);
    };
    found.push_back({NameOf(LeafPath(c, static_cast<int32_t>(i))), value(c.target, row.target),
                     value(c.golden, row.golden)});
  }
  AddMovedParameters(c, pair, &found);
  return found;
}

Message DescribeHyperParameters(const Comparison& c, int32_t p) {
  constexpr size_t kMost = 4;
  const std::vector<HyperParameter> found = DifferingHyperParameters(c, p);
  std::vector<Message> parts;
  for (size_t i = 0; i < std::min(found.size(), kMost); ++i) {
    const auto value = [](const std::string& v) { return v.empty() ? "not given"_t : Message(v); };
    parts.push_back("{} is {} in the target, {} in the golden"_t(
        found[i].name, value(found[i].target), value(found[i].golden)));
  }
  if (found.size() > kMost) parts.push_back("{} more differ"_t(found.size() - kMost));
  return Message::Joined(std::move(parts), "; ");
}

Message DescribeUpdates(const Comparison& c, int32_t p) {
  constexpr std::string_view kBefore = "input.weights.", kAfter = "output.0.weights.";
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched() || !IsOptimizerCall(c.target.records[pair.target].api)) return {};
  std::unordered_map<std::string, uint32_t> before;  // name -> row
  std::vector<WeightUpdate> updates;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    std::string_view label = LeafPath(c, static_cast<int32_t>(i));
    if (label.starts_with(kBefore)) {
      before.emplace(label.substr(kBefore.size()), i);
    } else if (label.starts_with(kAfter)) {
      label.remove_prefix(kAfter.size());
      const auto was = before.find(std::string(label));
      if (was == before.end()) continue;
      const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
      const Row& old = c.rows[was->second];
      updates.push_back({.name = std::string(label),
                         .dimensions = static_cast<int>(t.shape.extents().size()),
                         .wrong = c.measures[i].verdict == RowVerdict::kDiffers &&
                                  c.measures[was->second].verdict != RowVerdict::kDiffers,
                         .before = {c.target.leaves[old.target].norm_value,
                                    c.golden.leaves[old.golden].norm_value},
                         .after = {t.norm_value, g.norm_value}});
    }
  }
  return DescribeWrongUpdates(updates);
}

OwnWeight OwnWeightAt(const Comparison& c, int32_t p) {
  constexpr std::string_view kWeights = "input.weights.";
  const RecordPair& pair = c.pairs[p];
  OwnWeight found;
  if (!pair.matched() || !IsOptimizerCall(RecordOf(c, p).api)) return found;
  // The names of the weights of both runs, by their content in the target and in the golden.
  std::unordered_map<uint64_t, std::string_view> of_both[2];
  uint64_t key = 0;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    std::string_view name = LeafPath(c, static_cast<int32_t>(i));
    if (!name.starts_with(kWeights)) continue;
    name.remove_prefix(kWeights.size());
    const bool both = row.target >= 0 && row.golden >= 0;
    if (row.target >= 0 && both) of_both[0].emplace(ContentKey(c.target.leaves[row.target]), name);
    if (row.golden >= 0 && both) of_both[1].emplace(ContentKey(c.golden.leaves[row.golden]), name);
    if (both || !found.name.empty()) continue;
    found.name = name, found.in_target = row.target >= 0;
    key = ContentKey(found.in_target ? c.target.leaves[row.target] : c.golden.leaves[row.golden]);
  }
  const auto& names = of_both[found.in_target ? 0 : 1];
  const auto shared = key == 0 ? names.end() : names.find(key);
  if (shared == names.end()) return {};
  found.shared = shared->second;
  const size_t dot = found.name.rfind('.');
  if (dot == found.name.npos) return found;
  const std::string module = found.name.substr(0, dot) + " (";
  for (int32_t q = 0; q < p && found.user < 0; ++q) {
    if (c.pairs[q].matched() && ModuleAround(c, q).starts_with(module)) found.user = q;
  }
  return found;
}

}  // namespace msprobe::compare
