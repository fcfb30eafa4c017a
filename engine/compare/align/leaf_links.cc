#include "engine/compare/align/leaf_links.h"

#include <map>
#include <string_view>
#include <unordered_map>

namespace msprobe::compare {

LeafLinks LinkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping) {
  LeafLinks links;
  if (mapping.leaves.empty()) return links;
  std::unordered_map<std::string_view, int32_t> by_name;
  for (size_t i = 0; i < golden.leaves.size(); ++i)
    by_name.emplace(golden.leaves[i].name, static_cast<int32_t>(i));
  links.golden_of.assign(target.leaves.size(), -1);
  links.taken.assign(golden.leaves.size(), 0);
  links.record_of.assign(target.records.size(), -1);
  for (size_t r = 0; r < target.records.size(); ++r) {
    const Record& record = target.records[r];
    std::map<uint32_t, uint32_t> votes;
    for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
      const auto mapped = mapping.leaves.find(std::string(target.leaves[i].name));
      if (mapped == mapping.leaves.end()) continue;
      const auto found = by_name.find(mapped->second);
      if (found == by_name.end() || links.taken[found->second]) continue;
      links.golden_of[i] = found->second;
      links.taken[found->second] = 1;
      ++votes[golden.leaves[found->second].record];
    }
    uint32_t most = 0;
    for (const auto& [partner, count] : votes) {
      if (count <= most) continue;
      most = count;
      links.record_of[r] = static_cast<int32_t>(partner);
    }
  }
  return links;
}

}  // namespace msprobe::compare
