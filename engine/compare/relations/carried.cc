#include "engine/compare/relations/carried.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/memory.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

// Whether a call left the value in memory that may outlive the step: an optimizer also keeps what
// another call made, or nobody did, as a gradient that was added up as the first average.
bool IsLeft(const Graph& run, ValueId v) {
  const Value& value = run.values[v];
  if (value.plain) return false;
  const auto makers = run.MakersOf(v);
  if (std::any_of(makers.begin(), makers.end(),
                  [&run](CallId maker) { return run.calls[maker].kind == CallKind::kUpdate; }))
    return true;
  if (value.maker == kNoId) return false;
  const Call& call = run.calls[value.maker];
  return run.made[value.port].changed ||
         (call.facts->in_place && call.kind == CallKind::kOperation);
}

uint64_t KeyOf(const Graph& run, ValueId value) {
  const Value& v = run.values[value];
  if (v.maker != kNoId) return ContentKey(run.dump.leaves[run.made[v.port].leaf]);
  const auto takers = run.TakersOf(value);
  return takers.empty() ? 0 : ContentKey(run.dump.leaves[run.taken[takers[0].port].leaf]);
}

// The error of the gradient of a weight, relative to the terms that were added up to it; below 0:
// no gradient was recorded.
double GradientNoiseOf(const Relations& r, ValueId weight) {
  double noise = -1;
  for (const ValueId gradient : r.t.GradientsOf(weight))
    noise = std::max(noise, r.RelativeErrorOf(gradient));
  return noise;
}

// How many memories hold a value in the end that recorded calls other than optimizers wrote to: an
// average may be a copy of what an optimizer made, and its buffers copies of others.
std::unordered_map<ValueId, int> WrittenBy(const Graph& run) {
  std::unordered_map<ValueId, int> out;
  for (const Memory& memory : MemoriesOf(run)) ++out[memory.last];
  return out;
}

}  // namespace

Carried LeaveBehind(const Relations& r) {
  Carried out;
  bool updates = false;
  for (const Call& call : r.t.calls) updates |= call.kind == CallKind::kUpdate;
  for (ValueId v = 0; v < static_cast<ValueId>(r.t.values.size()); ++v) {
    const Relation& known = r.of(v);
    if (!IsLeft(r.t, v) || !r.IsRight(v) || known.strength == Strength::kEqual) continue;
    const uint64_t golden = known.golden == kNoId ? 0 : KeyOf(r.g, known.golden);
    if (golden == 0 && !r.IsPart(v)) continue;
    out.left[KeyOf(r.t, v)] = {.golden = golden,
                               .error = known.error,
                               .bound = known.bound,
                               .terms = r.Terms(v),
                               .in_order = known.strength == Strength::kNear};
  }
  for (const MemoryPair& each : PairMemories(r)) {
    const ValueId v = each.mine.last, w = each.golden.last;
    if (w == kNoId || r.t.values[v].plain || !r.IsRight(v) || !r.Fits(v, w)) continue;
    const uint64_t mine = KeyOf(r.t, v), golden = KeyOf(r.g, w);
    if (mine == golden || mine == 0 || golden == 0) continue;
    const auto known = out.left.find(mine);
    if (known != out.left.end() && known->second.golden == golden) continue;
    const double terms = r.Terms(v), error = r.ApartOf(v, w, terms).in_order;
    if (!std::isfinite(error)) continue;  // parts of a whole: they are carried above
    out.left[mine] = {.golden = golden,
                      .error = error,
                      .bound = std::max(r.of(v).bound, kOwnRoundings * r.t.values[v].roundoff()),
                      .terms = terms};
  }
  for (ValueId w = 0; w < static_cast<ValueId>(r.g.values.size()); ++w) {
    if (r.IsCovered(w) && IsLeft(r.g, w)) out.covered.insert(KeyOf(r.g, w));
  }
  // What only one run's recorded calls wrote. The other may have copied a recorded result into it.
  std::unordered_map<ValueId, int> mine = WrittenBy(r.t), golden = WrittenBy(r.g);
  for (const NextWeight& each : r.NextWeights()) {
    const bool one_made = (each.mine == kNoId) != (each.golden == kNoId);
    if (each.agrees && (one_made || mine[each.mine] != golden[each.golden]))
      out.elsewhere.insert(each.name);
  }
  if (updates) return out;
  double common = 0;  // of a weight whose gradient was not recorded
  for (const auto& [v, name] : r.t.NamedWeights()) common = std::max(common, GradientNoiseOf(r, v));
  for (const auto& [v, name] : r.t.NamedWeights()) {
    const ValueId w = r.of(v).golden;
    if (w == kNoId || !r.g.values[w].moments.known) continue;
    const double noise = GradientNoiseOf(r, v);
    const auto earlier = r.carried.unseen.find(name);
    out.unseen[name] = {
        .noise = std::max(noise < 0 ? common : noise,
                          earlier == r.carried.unseen.end() ? 0 : earlier->second.noise),
        .before = r.g.values[w].moments};
  }
  return out;
}

}  // namespace msprobe::compare::relations
