#include "engine/compare/model/other_weights.h"

#include <unordered_map>

#include "engine/model/names.h"

namespace msprobe::compare {

std::vector<OtherWeight> OtherWeights(const Comparison& c) {
  std::vector<OtherWeight> weights;
  if (c.target.weights.empty() || c.golden.weights.empty()) return weights;
  std::string room;
  std::unordered_map<std::string, std::string_view> golden;
  for (const Weight& weight : c.golden.weights)
    golden.emplace(WithoutWrappers(weight.name, &room), weight.fingerprint);
  for (const Weight& weight : c.target.weights) {
    std::string name(WithoutWrappers(weight.name, &room));
    const auto other = golden.find(name);
    if (other == golden.end() || weight.fingerprint.empty() || other->second.empty()) continue;
    if (weight.fingerprint != other->second)
      weights.push_back({std::move(name), weight.fingerprint, other->second});
  }
  return weights;
}

}  // namespace msprobe::compare
