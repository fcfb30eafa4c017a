#include "engine/compare/relations/memory.h"

#include <algorithm>
#include <unordered_map>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::relations {
namespace {

// The argument that a call changes by making the value at `port`; kNoId: the value is new.
ValueId Written(const Graph& run, CallId call, const Port& port) {
  const Record& record = run.dump.records[run.calls[call].record];
  const auto takes = run.Takes(call);
  if (!port.changed)
    return run.calls[call].facts->in_place && !takes.empty() ? takes[0].value : kNoId;
  const std::string_view suffix = LeafSuffix(run.dump.leaves[port.leaf], record);
  for (const Port& given : takes) {
    if (suffix.ends_with(LeafSuffix(run.dump.leaves[given.leaf], record))) return given.value;
  }
  return kNoId;
}

// A buffer of a module, which the call does not list among its arguments.
bool IsBuffer(const Graph& run, CallId call, const Port& port) {
  const Record& record = run.dump.records[run.calls[call].record];
  return port.changed &&
         LeafSuffix(run.dump.leaves[port.leaf], record).find("buffers") != std::string_view::npos;
}

bool Outlives(const Graph& run, ValueId value) {
  const CallId maker = run.values[value].maker;
  return run.IsWeight(value) || (maker != kNoId && run.calls[maker].kind == CallKind::kUpdate);
}

}  // namespace

std::vector<Memory> MemoriesOf(const Graph& run) {
  std::vector<Memory> out;
  std::unordered_map<ValueId, size_t> holds;  // the memory that holds a value now
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    if (!run.calls[id].IsForward()) continue;
    for (const Port& port : run.Makes(id)) {
      const ValueId before = Written(run, id, port);
      if (before == kNoId && !IsBuffer(run, id, port)) continue;
      // Constants do not tell one counter from another: each write stands for itself.
      const auto held =
          before == kNoId || run.values[before].plain ? holds.end() : holds.find(before);
      const bool found = held != holds.end() || before == kNoId || Outlives(run, before);
      const bool perhaps = !found && run.values[before].plain &&
                           run.values[before].maker == kNoId && run.values[before].moments.known &&
                           !run.values[before].unwritten;
      if (!found && !perhaps) continue;
      size_t index = out.size();
      if (held == holds.end()) {
        out.push_back({.root = before, .perhaps = perhaps});
      } else {
        index = held->second;
        holds.erase(held);
      }
      out[index].last = port.value;
      out[index].call = id;
      out[index].leaf = port.leaf;
      if (!run.values[port.value].plain) holds[port.value] = index;
    }
  }
  return out;
}

std::vector<MemoryPair> PairMemories(const Relations& r) {
  const std::vector<Memory> mine = MemoriesOf(r.t), others = MemoriesOf(r.g);
  std::unordered_map<ValueId, size_t> of_root, of_last;
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].root != kNoId && !r.g.values[others[i].root].plain) of_root[others[i].root] = i;
    of_last[others[i].last] = i;
  }
  std::vector<MemoryPair> out;
  std::vector<char> paired(others.size(), 0);
  for (const Memory& memory : mine) {
    MemoryPair pair{.mine = memory};
    // Constants do not tell one memory from another.
    const bool known = memory.root != kNoId && !r.t.values[memory.root].plain;
    const ValueId root = known ? r.of(memory.root).golden : kNoId;
    const ValueId there = r.AtPartner({.value = memory.last, .leaf = memory.leaf});
    if (const auto found = root == kNoId ? of_root.end() : of_root.find(root);
        found != of_root.end()) {
      pair.golden = others[found->second];
      paired[found->second] = 1;
    } else if (there != kNoId) {  // written by the partner
      const auto last = of_last.find(there);
      // The same constant in both runs: what torch.empty leaves is another one in each.
      const auto root_of = [&] { return others[last->second].root; };
      if (memory.perhaps && (last == of_last.end() || root_of() == kNoId ||
                             r.t.values[memory.root].content != r.g.values[root_of()].content))
        continue;
      pair.golden = {.last = there, .call = r.pair[memory.call]};
      if (last != of_last.end()) paired[last->second] = 1;
    } else if (root != kNoId) {
      pair.golden = {.root = root, .last = root};
    }
    if (!memory.perhaps || pair.golden.last != kNoId) out.push_back(pair);
  }
  std::unordered_map<ValueId, ValueId> target_of;
  for (ValueId v = 0; v < static_cast<ValueId>(r.t.values.size()); ++v) {
    const Value& value = r.t.values[v];
    if (!value.plain && value.maker == kNoId && r.of(v).golden != kNoId)
      target_of.emplace(r.of(v).golden, v);
  }
  for (size_t i = 0; i < others.size(); ++i) {
    const auto root = target_of.find(others[i].root);
    if (paired[i] != 0 || root == target_of.end()) continue;
    out.push_back({.mine = {.root = root->second, .last = root->second}, .golden = others[i]});
  }
  return out;
}

}  // namespace msprobe::compare::relations
