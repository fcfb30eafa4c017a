#include "engine/compare/align/mapping_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_set>
#include <vector>

#include "engine/base/text.h"

namespace msprobe::compare {
namespace {

// Divides "net.fc.Dense" into "net.fc" and "Dense".
std::pair<std::string, std::string> PathAndClass(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {"", std::string(name)};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

std::unordered_map<std::string, std::string> ClassesOf(const Dump& dump) {
  std::unordered_map<std::string, std::string> classes;
  for (const Record& r : dump.records) {
    if (!r.is_module) continue;
    auto [path, name] = PathAndClass(r.api.substr(r.api.view().find('.') + 1));
    classes.emplace(std::move(path), std::move(name));
  }
  return classes;
}

int64_t NumberOf(std::string_view part) {
  constexpr size_t kMostDigits = 9;
  const bool digits = !part.empty() && part.size() <= kMostDigits &&
                      part.find_first_not_of("0123456789") == part.npos;
  return digits ? std::strtoll(std::string(part).c_str(), nullptr, 10) : -1;
}

// The numbers that are children of each path: {0, 1} of "net.layers".
std::unordered_map<std::string, std::set<int64_t>> NumbersOf(const Dump& dump) {
  std::unordered_map<std::string, std::set<int64_t>> numbers;
  std::unordered_set<std::string_view> seen;
  for (const Record& r : dump.records) {
    if (!r.is_module || !seen.insert(r.api).second) continue;
    const std::string_view path = r.api.substr(r.api.view().find('.') + 1);
    for (size_t at = path.find('.'); at != path.npos; at = path.find('.', at + 1)) {
      const std::string_view child = path.substr(at + 1, path.find('.', at + 1) - at - 1);
      if (const int64_t number = NumberOf(child); number >= 0)
        numbers[std::string(path.substr(0, at))].insert(number);
    }
  }
  return numbers;
}

// What is added to the target's numbers to get the golden's: 2 for {0, 1} against {2, 3}. 0 when
// one set is not the other one shifted.
int64_t ShiftOf(const std::set<int64_t>* target, const std::set<int64_t>* golden) {
  if (target == nullptr || golden == nullptr || target->size() != golden->size()) return 0;
  for (const std::set<int64_t>* side : {target, golden}) {
    if (*side->rbegin() - *side->begin() + 1 != static_cast<int64_t>(side->size())) return 0;
  }
  return *golden->begin() - *target->begin();
}

template <typename Map>
const typename Map::mapped_type* Find(const Map& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

Result<LayerMapping> LayerMapping::Make(LayerRules rules, const Dump& target, const Dump& golden) {
  for (const Dump* dump : {&target, &golden}) {
    for (const char* name : {"construct.json", "stack.json"}) {
      if (IsRegularFile(JoinPath(dump->folder, name))) continue;
      return InvalidArgument()
          .At(dump->path)
          .Expected("{} beside it, which a layer mapping needs on both sides"_t(std::string(name)))
          .Found("none"_t)
          .Hint("collect with level L0 or mix, or name the pairs yourself: -dm pairs.yaml"_t);
    }
  }
  LayerMapping out;
  out.rules_ = std::move(rules);
  out.target_classes_ = ClassesOf(target);
  out.golden_classes_ = ClassesOf(golden);
  out.target_numbers_ = NumbersOf(target);
  out.golden_numbers_ = NumbersOf(golden);
  return out;
}

// Example: the target's path "backbone.0.attn.qkv", with the rules TopLayer {backbone -> model} and
// Block {attn.qkv -> self_attention.linear_qkv}. The loop takes a rule or one part at a time:
//
//   done (target)          rules of the class at `done`   out (golden)
//   ""                     TopLayer: backbone             model
//   backbone               none; a number, not shifted    model.0
//   backbone.0             Block: attn.qkv, two parts     model.0.self_attention.linear_qkv
// How many parts of `rest`, the name behind the module `done`, the rules of its class take (0:
// none), and what the golden calls them.
std::pair<size_t, std::string_view> LayerMapping::ByRules(const std::string& done,
                                                          std::string_view rest) {
  const auto known = target_classes_.find(done);
  auto rules = rules_.find(done.empty()                     ? "TopLayer"
                           : known != target_classes_.end() ? known->second
                                                            : std::string());
  if (rules == rules_.end() && done.empty() && known != target_classes_.end())
    rules = rules_.find(known->second);
  if (rules == rules_.end()) return {0, {}};
  size_t taken = 0;
  std::string_view mapped;
  for (const auto& [from, to] : rules->second) {
    const bool whole =
        rest.starts_with(from) && (rest.size() == from.size() || rest[from.size()] == '.');
    const auto dots = static_cast<size_t>(std::count(from.begin(), from.end(), '.')) + 1;
    if (!whole || dots <= taken) continue;
    taken = dots;
    mapped = to;
  }
  if (taken > 0) ++hits_;
  return {taken, mapped};
}

std::string LayerMapping::Map(std::string_view name) {
  const auto [path, own_class] = PathAndClass(name);
  const std::vector<std::string_view> parts =
      path.empty() ? std::vector<std::string_view>() : Split(path, '.');
  std::string done, out;  // the parts so far, as the target and as the golden spells them
  const auto append = [](std::string* to, std::string_view part) {
    if (!to->empty()) *to += '.';
    *to += part;
  };
  for (size_t i = 0; i < parts.size();) {
    const std::string_view rest(parts[i].data(), path.data() + path.size() - parts[i].data());
    const auto [taken, mapped] = ByRules(done, rest);
    std::string shifted;
    if (const int64_t number = NumberOf(parts[i]); taken == 0 && number >= 0) {
      const std::set<int64_t>* numbers = Find(target_numbers_, done);
      const int64_t shift = ShiftOf(numbers, Find(golden_numbers_, out));
      if (shift != 0) {
        shifted = std::to_string(number + shift);
        shifts_.emplace(done, "{}.{} and on are {}.{} and on in the golden"_t(
                                  done, *numbers->begin(), out, *numbers->begin() + shift));
      }
    }
    append(&out, taken > 0 ? mapped : shifted.empty() ? parts[i] : shifted);
    for (const size_t end = i + std::max<size_t>(taken, 1); i < end && i < parts.size(); ++i)
      append(&done, parts[i]);
  }
  const auto golden = golden_classes_.find(out);
  append(&out, golden != golden_classes_.end() ? golden->second : own_class);
  return out;
}

}  // namespace msprobe::compare
