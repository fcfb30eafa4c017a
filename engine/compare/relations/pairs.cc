// Which calls of the two runs stand at the same place: the pairs of relate.h.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

// Pairs of calls are hints: they say which values are compared first, and prove nothing.
void Relations::PairCalls() {
  std::vector<CallId> call_of_record(g.dump.records.size(), kNoId);
  for (CallId id = 0; id < static_cast<CallId>(g.calls.size()); ++id) {
    if (g.calls[id].kind != CallKind::kUpdate) call_of_record[g.calls[id].record] = id;
  }
  std::vector<int32_t> golden_record(t.dump.records.size(), kNoId);
  for (const RecordPair& each : c.pairs) {
    if (each.matched()) golden_record[each.target] = each.golden;
    for (uint32_t i = each.first_row; i < each.first_row + each.row_count; ++i) {
      const Row& row = c.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      golden_leaf_[row.target] = row.golden;
      target_leaf_[row.golden] = row.target;
      if (t.dump.leaves[row.target].kind == LeafKind::kScalar)
        scalar_differs_[row.target] = c.measures[i].verdict == RowVerdict::kDiffers;
    }
  }
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    CallId other = kNoId;
    if (call.kind == CallKind::kUpdate) {
      for (const auto ports : {t.Makes(id), t.Takes(id)}) {
        for (const Port& port : ports) {
          const int32_t leaf = golden_leaf_[port.leaf];
          const CallId owner = leaf >= 0 ? g.CallOfLeaf(leaf) : kNoId;
          if (other == kNoId && owner >= 0 && g.calls[owner].kind == CallKind::kUpdate)
            other = owner;
        }
      }
    } else if (golden_record[call.record] >= 0) {
      other = call_of_record[golden_record[call.record]];
      if (other >= 0 && g.calls[other].kind != call.kind) other = kNoId;
    }
    if (other >= 0 && partner[other] == kNoId) {
      pair[id] = other;
      partner[other] = id;
    }
  }
}

// The gradients of a module's parameters are recorded once for each backward pass; the last ones are
// complete. Where the runs make another number of passes, only those are the same sums.
void Relations::PairGradients() {
  std::unordered_map<int32_t, std::vector<CallId>> golden;
  std::unordered_map<int32_t, std::vector<CallId>> mine;
  std::unordered_map<int32_t, int32_t> path_of;  // of the target's module the golden's
  for (CallId id = 0; id < static_cast<CallId>(g.calls.size()); ++id) {
    if (g.calls[id].kind == CallKind::kGradients) golden[g.calls[id].path].push_back(id);
  }
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    if (t.calls[id].kind == CallKind::kGradients) mine[t.calls[id].path].push_back(id);
    if (t.calls[id].IsModule() && pair[id] != kNoId)
      path_of.emplace(t.calls[id].path, g.calls[pair[id]].path);
  }
  for (const auto& [path, calls] : mine) {
    const auto renamed = path_of.find(path);
    const auto there = golden.find(renamed == path_of.end() ? path : renamed->second);
    if (there == golden.end() || there->second.size() == calls.size()) continue;
    for (const CallId id : calls) Unpair(id);
    PairByPlace(calls.back(), there->second.back());
  }
}

void Relations::Unpair(CallId id) {
  if (pair[id] == kNoId) return;
  partner[pair[id]] = kNoId;
  pair[id] = kNoId;
  for (const auto ports : {t.Takes(id), t.Makes(id)}) {
    for (const Port& port : ports) {
      int32_t& there = golden_leaf_[port.leaf];
      if (there >= 0) target_leaf_[there] = -1;
      there = -1;
    }
  }
}

// Pairs two calls whose values have no rows, or other rows: values of equal place are partners.
void Relations::PairByPlace(CallId id, CallId other) {
  Unpair(id);
  if (partner[other] != kNoId) Unpair(partner[other]);
  pair[id] = other;
  partner[other] = id;
  for (const bool made : {false, true}) {
    for (const Port& port : made ? t.Makes(id) : t.Takes(id)) {
      for (const Port& there : made ? g.Makes(other) : g.Takes(other)) {
        if (there.place != port.place) continue;
        golden_leaf_[port.leaf] = there.leaf;
        target_leaf_[there.leaf] = port.leaf;
      }
    }
  }
}

// A forward call that is computed again in the backward pass has the partner of the first time.
void Relations::PairRecomputed() {
  const auto key_of = [this](CallId id) {
    uint64_t key = HashText(t.ApiOf(id), 3);
    for (const auto ports : {t.Takes(id), t.Makes(id)}) {
      for (const Port& port : ports)
        key = MixKeys(key, static_cast<uint64_t>(t.values[port.value].content) + 1);
    }
    return key;
  };
  std::unordered_map<uint64_t, CallId> first;
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    if (t.calls[id].IsForward() && pair[id] != kNoId) first.emplace(key_of(id), pair[id]);
  }
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    if (!call.IsBackward() || call.forward == kNoId || pair[id] != kNoId) continue;
    CallId forward = pair[call.forward];
    if (forward == kNoId) {
      const auto again = first.find(key_of(call.forward));
      if (again != first.end()) forward = again->second;
    }
    const CallId other = forward == kNoId ? kNoId : g.calls[forward].backward;
    if (other == kNoId || partner[other] != kNoId) continue;
    PairByPlace(id, other);
  }
}

// Calls of one place that the runs make in different numbers, because one divides the batch, or the
// time, in other parts.
void Relations::FindDivided() {
  std::map<std::tuple<CallKind, std::string_view, int32_t>, Group> places;
  const auto collect = [&](const Graph& run, std::vector<CallId> Group::*side) {
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      const Call& call = run.calls[id];
      if (call.kind == CallKind::kGradients || call.kind == CallKind::kUpdate ||
          call.kind == CallKind::kTotalNorm)
        continue;
      (places[{call.kind, run.ApiOf(id), call.path}].*side).push_back(id);
    }
  };
  collect(t, &Group::mine);
  collect(g, &Group::others);
  const auto add = [&](Group group) {
    const auto number = static_cast<int32_t>(divided_.size());
    for (const CallId id : group.mine) groups_of_[id].push_back(number);
    divided_.push_back(std::move(group));
  };
  // Of the first argument: a reduction has one result, however many rows it takes.
  const auto elements = [](const Graph& run, const std::vector<CallId>& calls) {
    int64_t n = 0;
    for (const CallId id : calls) {
      const auto ports = run.Takes(id).empty() ? run.Makes(id) : run.Takes(id);
      if (!ports.empty()) n += run.values[ports[0].value].moments.n;
    }
    return n;
  };
  for (const auto& [place, all] : places) {
    const size_t m = all.mine.size(), k = all.others.size();
    if (m == k) {
      for (size_t i = 0; i < m; ++i) {
        if (t.Makes(all.mine[i]).size() != g.Makes(all.others[i]).size())
          add({{all.mine[i]}, {all.others[i]}});
      }
      continue;
    }
    if (m == 0 || k == 0) continue;
    const size_t most = std::gcd(m, k);
    for (size_t calls = most; calls >= 1; --calls) {  // how many one pass makes
      if (most % calls != 0) continue;
      std::vector<Group> groups(calls);
      for (size_t i = 0; i < m; ++i) groups[i % calls].mine.push_back(all.mine[i]);
      for (size_t i = 0; i < k; ++i) groups[i % calls].others.push_back(all.others[i]);
      const bool fits = std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
        return elements(t, group.mine) == elements(g, group.others);
      });
      if (!fits) continue;
      for (Group& group : groups) add(std::move(group));
    }
  }
}

}  // namespace msprobe::compare::relations
