#include "engine/compare/model/optimizer_groups.h"

#include <algorithm>
#include <charconv>
#include <compare>
#include <map>
#include <utility>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kGroups = "param_groups.", kWeights = "weights.";

int64_t NumberOf(std::string_view text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

}  // namespace

GroupSetting GroupSettingOf(std::string_view place) {
  if (!place.starts_with(kGroups)) return {};
  place.remove_prefix(kGroups.size());
  const size_t dot = place.find('.');
  const int64_t group = NumberOf(place.substr(0, dot));
  constexpr int64_t kMostGroups = 1 << 20;  // a dump may be hostile
  if (dot == place.npos || group < 0 || group >= kMostGroups) return {};
  return {static_cast<int32_t>(group), place.substr(dot + 1)};
}

OptimizerGroups::OptimizerGroups(const Dump& dump, const Record& record) {
  if (!IsOptimizerCall(record.api)) return;
  std::map<int32_t, int64_t> counts;  // group -> parameters
  std::map<int32_t, std::string> settings;
  std::vector<std::string_view> names;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.slot == Slot::kOutput) continue;
    const std::string_view place = LeafPlace(leaf, record);
    const GroupSetting setting = GroupSettingOf(place);
    if (setting.name == "params") {
      counts[setting.group] = NumberOf(leaf.value);
    } else if (setting.group >= 0 && setting.name != "implementation") {
      settings[setting.group]
          .append(setting.name)
          .append("=")
          .append(leaf.value.view())
          .append(" ");
    }
    if (leaf.kind == LeafKind::kTensor && place.starts_with(kWeights))
      names.push_back(place.substr(kWeights.size()));
  }
  size_t at = 0;
  for (const auto& [group, count] : counts) {
    // The numbers of a damaged entry may say anything.
    if (count < 0 || static_cast<uint64_t>(count) > names.size() - at) break;
    for (int64_t i = 0; i < count; ++i) group_of_.emplace(names[at++], group);
    size_ = group + 1;
    settings_.resize(static_cast<size_t>(size_));
    settings_.back() = std::move(settings[group]);
  }
  if (at != names.size()) group_of_.clear();
}

std::vector<int32_t> OptimizerGroups::PartnersIn(const OptimizerGroups& other) const {
  std::vector<int32_t> partners(static_cast<size_t>(size_), -1);
  if (empty() || other.empty()) {
    for (int32_t g = 0; g < size_; ++g) partners[static_cast<size_t>(g)] = g;
    return partners;
  }
  std::map<std::pair<int32_t, int32_t>, int64_t> shared;
  for (const auto& [name, group] : group_of_) {
    const auto found = other.group_of_.find(name);
    if (found != other.group_of_.end()) ++shared[{group, found->second}];
  }
  struct Candidate {
    bool other_settings;
    int64_t not_shared;  // minus the number that is shared
    std::pair<int32_t, int32_t> groups;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  for (const auto& [groups, count] : shared) {
    const bool same = settings_[static_cast<size_t>(groups.first)] ==
                      other.settings_[static_cast<size_t>(groups.second)];
    candidates.push_back({!same, -count, groups});
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<char> taken(static_cast<size_t>(other.size_), 0);
  for (const Candidate& candidate : candidates) {
    int32_t& partner = partners[static_cast<size_t>(candidate.groups.first)];
    char& is_taken = taken[static_cast<size_t>(candidate.groups.second)];
    if (partner >= 0 || is_taken) continue;
    partner = candidate.groups.second;
    is_taken = 1;
  }
  for (int32_t& partner : partners) {
    const auto free = std::find(taken.begin(), taken.end(), 0);
    if (partner >= 0 || free == taken.end()) continue;
    partner = static_cast<int32_t>(free - taken.begin());
    *free = 1;
  }
  return partners;
}

}  // namespace msprobe::compare
