#include "engine/model/parameter_names.h"

#include <algorithm>
#include <charconv>

namespace msprobe {
namespace {

using Parameters = std::vector<Parameter>;

// The types of the positional arguments: "Tensor", "int", "Tensor[]"; "" fits every parameter.
std::vector<std::string> TypesGiven(const Dump& dump, const Record& record) {
  constexpr std::string_view kInput = ".input.";
  constexpr size_t kMost = 256;  // a damaged file may have any number
  std::vector<std::string> types;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    std::string_view place = leaf.name;
    if (leaf.slot != Slot::kInput || !place.starts_with(record.name)) continue;
    place.remove_prefix(record.name.size());
    if (!place.starts_with(kInput)) continue;
    place.remove_prefix(kInput.size());
    size_t index = 0;
    const auto digits = std::from_chars(place.data(), place.data() + place.size(), index);
    if (digits.ec != std::errc() || index >= kMost) continue;
    if (types.size() <= index) types.resize(index + 1);
    const bool in_list = digits.ptr != place.data() + place.size();
    if (leaf.kind == LeafKind::kNone || !types[index].empty()) continue;
    types[index] = leaf.kind == LeafKind::kTensor ? "Tensor" : std::string(leaf.type.view());
    if (in_list) types[index] += "[]";
  }
  return types;
}

bool Takes(const Parameter& parameter, std::string_view type) {
  if (parameter.types.empty() || type.empty()) return true;
  for (std::string_view rest = parameter.types; !rest.empty();) {
    const size_t end = std::min(rest.find('/'), rest.size());
    if (rest.substr(0, end) == type) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// The parameter of argument `index`; null: there is none.
const Parameter* At(const Parameters& parameters, size_t index) {
  if (index < parameters.size()) return &parameters[index];
  const bool rest = !parameters.empty() && parameters.back().takes_rest;
  return rest ? &parameters.back() : nullptr;
}

bool Fits(const Parameters& parameters, const std::vector<std::string>& given) {
  for (size_t i = 0; i < given.size(); ++i) {
    const Parameter* parameter = At(parameters, i);
    if (parameter == nullptr || !Takes(*parameter, given[i])) return false;
  }
  return true;
}

std::string NameOf(const Parameters& parameters, size_t index, size_t given) {
  const Parameter* parameter = At(parameters, index);
  if (parameter == nullptr || parameter->name.empty()) return "";
  const size_t first = parameters.size() - 1;
  const bool several = parameter->takes_rest && given > parameters.size();
  return std::string(parameter->name) + (several ? "." + std::to_string(index - first) : "");
}

}  // namespace

std::string ParameterName(const Dump& dump, const Record& record, size_t index) {
  const auto found =
      std::lower_bound(dump.signatures.begin(), dump.signatures.end(), record.api.view(),
                       [](const Signature& s, std::string_view name) { return s.api < name; });
  if (found == dump.signatures.end() || found->api != record.api.view()) return "";
  const std::vector<Parameters>& overloads = found->overloads;
  if (overloads.size() == 1 && !overloads[0].empty() && !overloads[0].back().takes_rest)
    return NameOf(overloads[0], index, 0);
  const std::vector<std::string> given = TypesGiven(dump, record);
  // arange(end), and not arange(start, end), which has a parameter without an argument.
  const bool exact = std::any_of(overloads.begin(), overloads.end(), [&](const Parameters& p) {
    return p.size() == given.size() && Fits(p, given);
  });
  std::string name;
  for (const Parameters& parameters : overloads) {
    if (!Fits(parameters, given) || (exact && parameters.size() != given.size())) continue;
    const std::string here = NameOf(parameters, index, given.size());
    if (here.empty() || (!name.empty() && here != name)) return "";
    name = here;
  }
  return name;
}

}  // namespace msprobe
