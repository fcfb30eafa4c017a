// Which calls of the two runs stand at the same place: the pairs of relate.h.
#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

// Pairs of calls are hints: they say which values are compared first, and prove nothing.
void Relations::PairCalls() {
  std::vector<CallId> call_of_record(g.dump.records.size(), kNoId);
  for (CallId id = 0; id < static_cast<CallId>(g.calls.size()); ++id) {
    if (g.calls[id].kind != CallKind::kUpdate && g.calls[id].element == kNoId)
      call_of_record[g.calls[id].record] = id;
  }
  std::vector<int32_t> golden_record(t.dump.records.size(), kNoId);
  for (const RecordPair& each : c.pairs) {
    if (each.matched()) golden_record[each.target] = each.golden;
    const auto index = static_cast<int32_t>(&each - c.pairs.data());
    if (c.IsCompiled(index) && each.golden >= 0 && call_of_record[each.golden] != kNoId)
      compiled_[call_of_record[each.golden]] = 1;
    for (uint32_t i = each.first_row; i < each.first_row + each.row_count; ++i) {
      const Row& row = c.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      // Two tools list these gradients in different orders: they are known by their contents alone.
      if (c.measures[i].reason == Reason::kGradientOrder) continue;
      golden_leaf_[row.target] = row.golden;
      target_leaf_[row.golden] = row.target;
      if (t.dump.leaves[row.target].kind == LeafKind::kScalar)
        scalar_differs_[row.target] = c.measures[i].verdict == RowVerdict::kDiffers;
    }
  }
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    CallId other = kNoId;
    if (call.kind == CallKind::kUpdate || call.element != kNoId) {
      for (const auto ports : {t.Makes(id), t.Takes(id)}) {
        for (const Port& port : ports) {
          const int32_t leaf = golden_leaf_[port.leaf];
          const CallId owner = leaf >= 0 ? g.CallOfLeaf(leaf) : kNoId;
          if (other == kNoId && owner >= 0 && g.calls[owner].kind == call.kind &&
              (g.calls[owner].element == kNoId) == (call.element == kNoId))
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

// The gradients of a module's parameters are recorded once for each backward pass; the last ones
// are complete. Where the runs make another number of passes, only those are the same sums.
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

// Calls of one place, in their order: where the runs divide a batch, or the time, in other parts,
// several of them do together what several of the golden's do.
void Relations::FindPlaces() {
  std::map<std::tuple<CallKind, std::string_view, int32_t>, int32_t> numbers;
  place_of_.assign(t.calls.size(), {});
  const auto collect = [&](const Graph& run, std::vector<CallId> Place::*side, bool mine) {
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      const Call& call = run.calls[id];
      if (call.kind == CallKind::kGradients || call.kind == CallKind::kUpdate ||
          call.kind == CallKind::kTotalNorm)
        continue;
      const auto [at, is_new] = numbers.try_emplace({call.kind, run.ApiOf(id), call.path},
                                                    static_cast<int32_t>(places_.size()));
      if (is_new) places_.emplace_back();
      auto& calls = places_[at->second].*side;
      if (mine) place_of_[id] = {at->second, static_cast<int32_t>(calls.size())};
      calls.push_back(id);
    }
  };
  collect(t, &Place::mine, true);
  collect(g, &Place::others, false);
  for (Place& place : places_) {
    place.related.resize(place.mine.size());
    place.divided.resize(place.mine.size());
    place.open.resize(place.mine.size());
  }
}

// Whether all calls of a place take and make values of the same forms, of which moments alone are
// known: as many of them are never told apart together (RelateParts).
bool Relations::AreAlike(Place* place) const {
  if (place->alike) return *place->alike;
  const auto same_form = [](const Value& a, const Value& b) {
    return a.dtype.dtype() == b.dtype.dtype() && a.shape == b.shape;
  };
  const auto alike = [&](const Graph& run, CallId id, const Graph& first_run, CallId first) {
    for (const bool made : {false, true}) {
      const auto ports = made ? run.Makes(id) : run.Takes(id);
      const auto others = made ? first_run.Makes(first) : first_run.Takes(first);
      if (ports.size() != others.size()) return false;
      for (size_t i = 0; i < ports.size(); ++i) {
        if (ports[i].place != others[i].place || !run.SketchesOf(ports[i].value).empty() ||
            !same_form(run.values[ports[i].value], first_run.values[others[i].value]))
          return false;
      }
    }
    return true;
  };
  const CallId mine = place->mine[0], other = place->others[0];
  place->alike =
      alike(g, other, t, mine) &&
      std::ranges::all_of(place->mine, [&](CallId id) { return alike(t, id, t, mine); }) &&
      std::ranges::all_of(place->others, [&](CallId id) { return alike(g, id, g, other); });
  return *place->alike;
}

// Whether the calls of a place, `calls` in one pass, take as many elements in each of them.
bool Relations::AreDivided(const Place& place, size_t calls) const {
  // Of the first argument, since a reduction has one result however many rows it takes; or of the
  // first result, since the first argument may be the same for all rows.
  const auto count = [calls](const Graph& run, const std::vector<CallId>& all, bool made) {
    std::vector<int64_t> elements(calls, 0);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto ports = made || run.Takes(all[i]).empty() ? run.Makes(all[i]) : run.Takes(all[i]);
      if (!ports.empty()) elements[i % calls] += run.values[ports[0].value].moments.n;
    }
    return elements;
  };
  const auto agree = [&](bool made) {
    return count(t, place.mine, made) == count(g, place.others, made);
  };
  return agree(false) || agree(true);
}

const std::vector<size_t>& Relations::PassesOf(Place* place) const {
  if (place->passes) return *place->passes;
  constexpr size_t kMostParts = 64;  // of a batch
  place->passes.emplace();
  const size_t m = place->mine.size(), k = place->others.size(), most = std::gcd(m, k);
  const size_t least = std::max<size_t>((std::max(m, k) + kMostParts - 1) / kMostParts, 1);
  for (size_t parts = 1; most / parts >= least; ++parts) {
    const size_t calls = most / parts;
    if (most % parts == 0 && (m != calls || k != calls) && AreDivided(*place, calls))
      place->passes->push_back(calls);
  }
  return *place->passes;
}

// The calls that do together what a call does a part of, in each way to divide them; only for the
// last one of them, when all that they take is known. Where all that they take and make is known,
// or none of them was related again, there is nothing to find.
std::vector<Relations::Group> Relations::GroupsOf(CallId call) {
  std::vector<Group> out;
  const auto [number, index] = place_of_[call];
  if (number < 0) return out;
  Place& place = places_[number];
  const size_t m = place.mine.size(), k = place.others.size();
  if (k == 0 || (m == k && AreAlike(&place))) return out;
  const uint64_t asked = place.divided[index];
  const auto makes = t.Makes(call);
  const bool known = std::all_of(makes.begin(), makes.end(),
                                 [this](const Port& port) { return IsKnown(port.value); });
  if (m == k && !known && place.related[index] > asked &&
      makes.size() + g.Makes(place.others[index]).size() > 2)
    out.push_back({{call}, {place.others[index]}});  // one call that divides
  for (const size_t calls : PassesOf(&place)) {
    const size_t r = static_cast<size_t>(index) % calls;
    if (static_cast<size_t>(index) + calls < m) continue;
    bool open = false, again = false;
    for (size_t i = r; i < m; i += calls) {
      open |= place.open[i] != 0;
      again |= place.related[i] > asked;
    }
    if (!open || !again) continue;
    Group group;
    for (size_t i = r; i < m; i += calls) group.mine.push_back(place.mine[i]);
    for (size_t i = r; i < k; i += calls) group.others.push_back(place.others[i]);
    out.push_back(std::move(group));
  }
  return out;
}

bool Relations::OtherApi(CallId id) const {
  return !of_two_frameworks && BaseApi(t.ApiOf(id)) != BaseApi(g.ApiOf(pair[id]));
}

// A plain argument that says what a call computes. Of a dtype or a device the result tells; which
// kernel an optimizer chooses is no setting.
static bool IsSetting(const Record& record, const Leaf& leaf) {
  if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput ||
      IsImplementation(record, leaf))
    return false;
  const std::string_view type = leaf.type.view();
  return type.find("dtype") == std::string_view::npos &&
         type.find("device") == std::string_view::npos &&
         type.find("layout") == std::string_view::npos &&
         type.find("memory_format") == std::string_view::npos;
}

// What an argument that is left out says nearly always: a dilation of 1, a padding of 0, no mask.
static bool IsNeutral(const Leaf& leaf) {
  constexpr std::string_view kNeutral[] = {"None", "False", "0", "1", "0.0", "1.0"};
  return std::ranges::find(kNeutral, std::string_view(leaf.value)) != std::end(kNeutral);
}

bool Relations::OtherScalars(CallId id) const {
  const int32_t record = t.calls[id].record, other = g.calls[pair[id]].record;
  if (t.calls[id].kind != CallKind::kUpdate)
    return OtherScalarsOf(t.dump.records[record], g.dump.records[other]);
  if (scalars_.record != record || scalars_.other != other)
    scalars_ = {record, other, OtherScalarsOf(t.dump.records[record], g.dump.records[other])};
  return scalars_.differ;
}

bool Relations::OtherScalarsOf(const Record& record, const Record& other) const {
  for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
    const Leaf& leaf = t.dump.leaves[i];
    if (!IsSetting(record, leaf)) continue;
    const int32_t there = golden_leaf_[i];
    if (there < 0) {
      if (!of_two_frameworks && !IsNeutral(leaf)) return true;
      continue;
    }
    if (scalar_differs_[i] != 0) return true;
  }
  for (uint32_t i = other.first_leaf; i < other.first_leaf + other.leaf_count; ++i) {
    const Leaf& leaf = g.dump.leaves[i];
    if (!of_two_frameworks && IsSetting(other, leaf) && target_leaf_[i] < 0 && !IsNeutral(leaf))
      return true;
  }
  return false;
}

bool Relations::Alike(CallId id) const {
  if (id == kNoId || pair[id] == kNoId) return false;
  const Call &mine = t.calls[id], &other = g.calls[pair[id]];
  for (const Port& port : t.Takes(id)) {
    if (!FitsOrWrong(port.value, AtPartner(port))) return false;
  }
  if (mine.kind == CallKind::kBackward)
    return mine.forward != kNoId && pair[mine.forward] == other.forward && Alike(mine.forward);
  if (mine.kind == CallKind::kModule) return t.ChildrenOf(id).empty();
  const bool free = mine.kind != CallKind::kOperation || mine.facts->exchanges ||
                    mine.facts->opaque || mine.facts->draws;
  return !free && !OtherApi(id) && !OtherScalars(id);
}

}  // namespace msprobe::compare::relations
