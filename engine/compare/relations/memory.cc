#include "engine/compare/relations/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>

#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/step_in_path.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/text_arena.h"

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

// What calls of the run made, by fingerprint.
std::unordered_map<uint64_t, ValueId> MadeByKey(const Graph& run) {
  std::unordered_map<uint64_t, ValueId> made;
  for (const Port& port : run.made) {
    if (!run.values[port.value].plain) made[ContentKey(run.dump.leaves[port.leaf])] = port.value;
  }
  return made;
}

// How far two weights are apart, relative to their size; 0: the same bits. Sketches tell, which
// know the order of elements: without them it is not known, and infinite.
double DistanceOfWeights(const StepWeight& a, const StepWeight& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.fingerprint == b.fingerprint) return 0;
  if (a.dtype != b.dtype || !a.sketch || !b.sketch) return kInfinity;
  const double size = std::max(std::abs(b.max), std::abs(b.min));
  const double of_elements =
      std::max({std::abs(a.max - b.max), std::abs(a.min - b.min), std::abs(a.mean - b.mean)});
  const double of_all =
      std::max({std::abs(a.norm - b.norm), std::abs(a.sketch->rows - b.sketch->rows),
                std::abs(a.sketch->wave - b.sketch->wave)});
  return size > 0 && b.norm > 0 ? std::max(of_elements / size, of_all / b.norm) : kInfinity;
}

// Code without records of one run made what calls of the other one made of values that are near: it
// may be off by what they are off by.
class UnrecordedMaking {
 public:
  explicit UnrecordedMaking(const Relations& relations) : r_(relations) {
    for (ValueId v = 0; v < static_cast<ValueId>(r_.t.values.size()); ++v) {
      if (r_.of(v).strength >= Strength::kNear && r_.of(v).golden != kNoId)
        target_of_.emplace(r_.of(v).golden, v);
    }
  }

  // Of a value that recorded calls of a run made. nullopt: of something that went into it nobody
  // knows.
  std::optional<double> ErrorOf(const Graph& run, ValueId value, int calls = kMostCalls) const {
    if (run.values[value].plain) return 0;
    if (const ValueId v = InTarget(run, value); v != kNoId) return r_.RelativeErrorOf(v);
    const CallId maker = run.values[value].maker;
    const std::vector<CallId>& partners = &run == &r_.t ? r_.pair : r_.partner;
    if (calls == 0 || maker == kNoId || partners[maker] != kNoId) return std::nullopt;
    double error = 0;
    for (const ValueId from : run.InputsOf(value, /*saved=*/false)) {
      const std::optional<double> of_input = ErrorOf(run, from, calls - 1);
      if (!of_input) return std::nullopt;
      error = std::max(error, *of_input);
    }
    return error;
  }

 private:
  // The related value of the target; kNoId: there is none.
  ValueId InTarget(const Graph& run, ValueId value) const {
    if (&run == &r_.t) return r_.of(value).strength >= Strength::kNear ? value : kNoId;
    const auto found = target_of_.find(value);
    return found == target_of_.end() ? kNoId : found->second;
  }

  static constexpr int kMostCalls = 8;  // in a row
  const Relations& r_;
  std::unordered_map<ValueId, ValueId> target_of_;  // of values of the golden
};

}  // namespace

const std::vector<NextWeight>& Relations::NextWeights() const {
  if (next_weights_) return *next_weights_;
  std::vector<NextWeight>& out = next_weights_.emplace();
  const std::vector<StepWeight> mine = dump::WeightsAfter(t.dump),
                                others = dump::WeightsAfter(g.dump);
  if (mine.empty() || others.empty()) return out;
  const auto my_values = MadeByKey(t), other_values = MadeByKey(g);
  std::unordered_map<std::string_view, const StepWeight*> by_name;
  for (const StepWeight& weight : others) by_name.emplace(weight.name, &weight);
  std::optional<UnrecordedMaking> making;
  TextArena arena;
  const auto value_of = [&](const std::unordered_map<uint64_t, ValueId>& values,
                            const StepWeight& weight) {
    const auto found = values.find(HashText(FingerprintText(weight.fingerprint, &arena), 1));
    return found == values.end() ? kNoId : found->second;
  };
  for (const StepWeight& weight : mine) {
    const auto there = by_name.find(weight.name);
    if (there == by_name.end() || weight.fingerprint.empty() || there->second->fingerprint.empty())
      continue;
    NextWeight next{.name = weight.name,
                    .mine = value_of(my_values, weight),
                    .golden = value_of(other_values, *there->second)};
    const double roundoff = next.golden != kNoId ? g.values[next.golden].roundoff()
                            : next.mine != kNoId ? t.values[next.mine].roundoff()
                                                 : 0;
    const double apart = DistanceOfWeights(weight, *there->second);
    next.agrees = apart <= kOwnRoundings * roundoff;
    if (!next.agrees && (next.mine == kNoId) != (next.golden == kNoId)) {
      if (!making) making.emplace(*this);
      const std::optional<double> error =
          next.mine == kNoId ? making->ErrorOf(g, next.golden) : making->ErrorOf(t, next.mine);
      next.agrees = error && apart <= kSurely * *error;
    }
    out.push_back(std::move(next));
  }
  return out;
}

std::vector<Memory> MemoriesOf(const Graph& run) {
  std::vector<Memory> out;
  std::unordered_map<ValueId, size_t> holds;  // the memory that holds a value now
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    if (!run.calls[id].IsForward()) continue;
    for (const Port& port : run.Makes(id)) {
      const ValueId before = Written(run, id, port);
      if (before == kNoId && !IsBuffer(run, id, port)) continue;
      // A module shows what a call inside of it has written, and a call its result twice.
      const auto shown = holds.find(port.value);
      if (shown != holds.end() && (before == kNoId || out[shown->second].call == id)) continue;
      // Constants do not tell one counter from another: each write stands for itself.
      const auto held =
          before == kNoId || run.values[before].plain ? holds.end() : holds.find(before);
      const bool found = held != holds.end() || before == kNoId || Outlives(run, before);
      if (!found) continue;
      size_t index = out.size();
      if (held == holds.end()) {
        out.push_back({.root = before});
      } else {
        index = held->second;
        holds.erase(held);
      }
      out[index].last = port.value;
      out[index].written.push_back(port.value);
      out[index].call = id;
      out[index].leaf = port.leaf;
      if (!run.values[port.value].plain) holds[port.value] = index;
    }
  }
  return out;
}

std::vector<MemoryPair> PairMemories(const Relations& r) {
  const std::vector<Memory> mine = MemoriesOf(r.t), others = MemoriesOf(r.g);
  std::unordered_map<ValueId, size_t> of_written;  // of a content in several memories, the last
  std::unordered_map<ValueId, std::vector<size_t>> of_root;
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].root != kNoId && !r.g.values[others[i].root].plain)
      of_root[others[i].root].push_back(i);
    for (const ValueId written : others[i].written) of_written[written] = i;
  }
  std::vector<MemoryPair> out;
  std::vector<char> paired(others.size(), 0);
  // Several may begin with one content, those of a model and of its copy: then the partner of the
  // call that writes to it, or the first one that is left. nullopt: no recorded call wrote to it.
  const auto choose = [&](const Memory& memory, const std::vector<size_t>& among) {
    const auto by_call = std::find_if(among.begin(), among.end(), [&](size_t i) {
      return others[i].call != kNoId && others[i].call == r.pair[memory.call];
    });
    if (by_call != among.end()) return std::optional(*by_call);
    const auto left =
        std::find_if(among.begin(), among.end(), [&](size_t i) { return paired[i] == 0; });
    return left != among.end() ? std::optional(*left) : std::nullopt;
  };
  for (const Memory& memory : mine) {
    MemoryPair pair{.mine = memory};
    // Constants do not tell one memory from another.
    const bool known = memory.root != kNoId && !r.t.values[memory.root].plain;
    const ValueId root = known ? r.of(memory.root).golden : kNoId;
    const ValueId there = r.AtPartner({.value = memory.last, .leaf = memory.leaf});
    const auto found = root == kNoId ? of_root.end() : of_root.find(root);
    const std::optional<size_t> chosen =
        found == of_root.end() ? std::nullopt : choose(memory, found->second);
    if (chosen) {
      pair.golden = others[*chosen];
      paired[*chosen] = 1;
    } else if (found == of_root.end() && there != kNoId) {
      // Which was given the same, or else was written by the partner.
      auto by = of_written.find(there);
      for (const ValueId written : memory.written) {
        const ValueId same = r.of(written).golden;
        const auto given = r.IsRight(written) && same != kNoId && !r.g.values[same].plain
                               ? of_written.find(same)
                               : of_written.end();
        if (given != of_written.end()) by = given;
      }
      pair.golden = {.last = there, .call = r.pair[memory.call]};
      if (by != of_written.end()) {
        pair.golden.last = others[by->second].last;
        paired[by->second] = 1;
      }
    } else if (root != kNoId) {
      pair.golden = {.root = root, .last = root};
    }
    out.push_back(pair);
  }
  std::vector<ValueId> target_of(r.g.values.size(), kNoId);
  for (ValueId v = 0; v < static_cast<ValueId>(r.t.values.size()); ++v) {
    const Value& value = r.t.values[v];
    const ValueId golden = r.of(v).golden;
    if (!value.plain && value.maker == kNoId && golden != kNoId && target_of[golden] == kNoId)
      target_of[golden] = v;
  }
  for (size_t i = 0; i < others.size(); ++i) {
    const ValueId root = others[i].root == kNoId ? kNoId : target_of[others[i].root];
    if (paired[i] != 0 || root == kNoId) continue;
    out.push_back({.mine = {.root = root, .last = root}, .golden = others[i]});
  }
  return out;
}

}  // namespace msprobe::compare::relations
