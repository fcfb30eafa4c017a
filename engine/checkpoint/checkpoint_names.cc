#include "engine/checkpoint/checkpoint_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "engine/base/text.h"

namespace msprobe::checkpoint {
namespace {

using Index = std::unordered_map<std::string_view, int32_t>;

Index IndexOf(const std::vector<std::string>& names) {
  Index index;
  for (size_t i = 0; i < names.size(); ++i) index.emplace(names[i], static_cast<int32_t>(i));
  return index;
}

size_t CommonNames(const std::vector<std::string>& names, const Index& index,
                   std::string_view wrapper) {
  size_t common = 0;
  for (const std::string& name : names) {
    std::string_view rest = name;
    if (!rest.starts_with(wrapper)) continue;
    rest.remove_prefix(wrapper.size());
    common += index.contains(rest);
  }
  return common;
}

// A wrapper is what all names of one side begin with: "state_dict.model.". The result is the
// wrapper without which most names are found on the other side; "" when more are found with all
// their parts.
std::string FindWrapper(const std::vector<std::string>& names, const Index& other) {
  constexpr int kDeepest = 3;
  std::set<std::string> candidates;
  for (const std::string& name : names) {
    size_t end = 0;
    for (int depth = 0; depth < kDeepest && (end = name.find('.', end)) != name.npos; ++depth)
      candidates.insert(name.substr(0, ++end));
    if (candidates.size() > 64) break;
  }
  std::string best;
  size_t most = CommonNames(names, other, "");
  for (const std::string& candidate : candidates) {
    const size_t common = CommonNames(names, other, candidate);
    if (common > most) {
      most = common;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> NamesOf(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) names.push_back(tensor.name);
  return names;
}

// Removes the wrapper from names, except where another tensor has the shorter name already.
void Unwrap(const std::string& wrapper, std::vector<std::string>* names) {
  std::set<std::string> taken(names->begin(), names->end());
  for (std::string& name : *names) {
    if (!name.starts_with(wrapper)) continue;
    std::string rest = name.substr(wrapper.size());
    if (!rest.empty() && taken.insert(rest).second) name = std::move(rest);
  }
}

}  // namespace

PairedNames PairNames(const Checkpoint& target, const Checkpoint& golden,
                      const ParameterMapping& mapping) {
  PairedNames out{.target = NamesOf(target), .golden = NamesOf(golden)};
  std::vector<int32_t> target_of(out.golden.size(), -1);
  // The names to look for in the golden. Tables show the names of out.target.
  std::vector<std::string> wanted = out.target;
  const Index golden_names = IndexOf(out.golden);
  for (size_t t = 0; t < wanted.size(); ++t) {
    const auto mapped = mapping.names.find(wanted[t]);
    out.mapped.push_back(mapped != mapping.names.end());
    if (mapped == mapping.names.end()) continue;
    const auto whole = golden_names.find(mapped->second);
    if (whole != golden_names.end() && target_of[whole->second] < 0) {
      target_of[whole->second] = static_cast<int32_t>(t);
      wanted[t].clear();  // found under its whole name
    } else {
      wanted[t] = mapped->second;
    }
  }
  const std::string of_target = FindWrapper(wanted, golden_names);
  const std::string of_golden = FindWrapper(out.golden, IndexOf(wanted));
  const size_t without_target = CommonNames(wanted, golden_names, of_target);
  const size_t without_golden = CommonNames(out.golden, IndexOf(wanted), of_golden);
  const bool is_target = without_target >= without_golden;
  const std::string& wrapper = is_target ? of_target : of_golden;
  if (!wrapper.empty()) {
    Unwrap(wrapper, is_target ? &wanted : &out.golden);
    out.notes.push_back("names of the {} are compared without {} in front"_t(
        is_target ? "target"_t : "golden"_t, wrapper));
  }
  out.notes.insert(out.notes.end(), mapping.notes.begin(), mapping.notes.end());

  const Index by_name = IndexOf(wanted);
  std::vector<char> paired(wanted.size(), 0);
  for (size_t g = 0; g < out.golden.size(); ++g) {
    const auto found = by_name.find(out.golden[g]);
    if (target_of[g] < 0 && found != by_name.end() && !out.golden[g].empty())
      target_of[g] = found->second;
    if (target_of[g] >= 0) paired[target_of[g]] = 1;
    out.pairs.emplace_back(target_of[g], static_cast<int32_t>(g));
  }
  for (size_t t = 0; t < wanted.size(); ++t) {
    if (!paired[t]) out.pairs.emplace_back(static_cast<int32_t>(t), -1);
    if (!out.mapped[t]) out.target[t] = std::move(wanted[t]);
  }
  return out;
}

}  // namespace msprobe::checkpoint
