// Entries that are several calls: of an optimizer, and of what computes on lists (graph.h).
#include <charconv>
#include <map>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {
void Graph::AddOptimizer(int32_t index, Paths* paths) {
  const Record& record = dump.records[index];
  // "gradients.fc.weight" -> its parameter; the state has one more part: "state.fc.weight.exp_avg".
  const auto parameter_of = [&](const Leaf& leaf) -> std::string_view {
    std::string_view place = LeafPlace(leaf, record);
    if (place.starts_with("0.")) place.remove_prefix(2);
    for (const std::string_view group : {"gradients.", "weights."}) {
      if (place.starts_with(group)) return place.substr(group.size());
    }
    if (!place.starts_with("state.")) return {};
    place.remove_prefix(6);
    return place.substr(0, place.rfind('.'));
  };
  std::unordered_map<std::string_view, std::vector<int32_t>> leaves_of;
  std::vector<std::string_view> names;
  std::vector<int32_t> gradients;
  int32_t total = kNoId;
  for (uint32_t i = 0; i < record.leaf_count; ++i) {
    const auto leaf = static_cast<int32_t>(record.first_leaf + i);
    const Leaf& l = dump.leaves[leaf];
    if (l.kind != LeafKind::kTensor) continue;
    const std::string_view parameter = parameter_of(l);
    if (parameter.empty()) {
      if (!GoesIn(l.slot)) total = leaf;
      continue;
    }
    auto& list = leaves_of[parameter];
    if (list.empty()) names.push_back(parameter);
    list.push_back(leaf);
    if (GoesIn(l.slot) && LeafPlace(l, record).starts_with("gradients.")) gradients.push_back(leaf);
  }
  const auto add = [&](CallKind kind, std::string_view parameter) {
    Call call;
    call.kind = kind;
    call.record = index;
    call.parameter = parameter;
    if (const size_t dot = parameter.rfind('.'); dot != std::string_view::npos)
      call.path = paths->Of(parameter.substr(0, dot));
    call.facts = &operations_.Of(record.api);
    call.first_take = static_cast<uint32_t>(taken.size());
    call.first_make = static_cast<uint32_t>(made.size());
    calls.push_back(call);
    return static_cast<CallId>(calls.size()) - 1;
  };
  if (total != kNoId) {
    const CallId id = add(CallKind::kTotalNorm, {});
    for (size_t i = 0; i < gradients.size(); ++i) Take(id, gradients[i], static_cast<int32_t>(i));
    Make(id, total, 0);
  }
  for (const std::string_view name : names) {
    const CallId id = add(CallKind::kUpdate, name);
    int32_t place = 0;
    for (const int32_t leaf : leaves_of[name]) {
      if (GoesIn(dump.leaves[leaf].slot)) Take(id, leaf, place++);
    }
    if (total != kNoId) {
      taken.push_back({.value = value_of_leaf_[total], .leaf = total, .place = place});
      ++calls[id].takes;
    }
    place = 0;
    for (const int32_t leaf : leaves_of[name]) {
      if (!GoesIn(dump.leaves[leaf].slot)) Make(id, leaf, place++);
    }
  }
}

// What is computed of lists of tensors is a call for each element: it depends on no other one.
void Graph::AddElements(Call call) {
  const Record& record = dump.records[call.record];
  // "input.0.3" and "output.3" -> 3; kNoId: every element takes it, as a tensor of one number.
  const auto element_of = [&](const Leaf& leaf) {
    const std::string_view suffix = LeafSuffix(leaf, record);
    const size_t dot = suffix.rfind('.');
    int32_t number = kNoId;
    const bool listed =
        !GoesIn(leaf.slot) || LeafPlace(leaf, record).find('.') != std::string::npos;
    if (listed && dot != std::string_view::npos)
      std::from_chars(suffix.data() + dot + 1, suffix.data() + suffix.size(), number);
    return number;
  };
  std::map<int32_t, std::vector<int32_t>> leaves_of;
  for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
    if (dump.leaves[i].kind == LeafKind::kTensor)
      leaves_of[element_of(dump.leaves[i])].push_back(static_cast<int32_t>(i));
  }
  const std::vector<int32_t> common = leaves_of[kNoId];
  leaves_of.erase(kNoId);
  if (leaves_of.empty()) {  // nothing was listed
    calls.push_back(call);
    AddPorts(static_cast<CallId>(calls.size()) - 1);
    return;
  }
  for (const auto& [number, leaves] : leaves_of) {
    call.element = number;
    call.first_take = static_cast<uint32_t>(taken.size());
    call.first_make = static_cast<uint32_t>(made.size());
    calls.push_back(call);
    const CallId id = static_cast<CallId>(calls.size()) - 1;
    int32_t place_in = 0, place_out = 0;
    for (const auto* list : {&leaves, &common}) {
      for (const int32_t leaf : *list) {
        if (GoesIn(dump.leaves[leaf].slot)) Take(id, leaf, place_in++);
      }
    }
    for (const int32_t leaf : leaves) {
      if (!GoesIn(dump.leaves[leaf].slot)) Make(id, leaf, place_out++);
    }
  }
}

}  // namespace msprobe::compare::relations
