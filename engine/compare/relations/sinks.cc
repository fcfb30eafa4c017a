// What a step leaves behind, and where the target leaves something else: the sinks of expose.h.
#include <algorithm>
#include <cmath>

#include "engine/base/threads.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
namespace {

// Whether a backward call is the first of its pass.
bool BeginsPass(const Graph& run, CallId backward) {
  return backward == 0 || !run.calls[backward - 1].IsBackward();
}

// The backward pass of each call, by its number; -1: it belongs to none.
std::vector<int32_t> PassesOf(const Graph& run) {
  std::vector<int32_t> passes(run.calls.size(), -1);
  int32_t pass = -1;
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    if (!run.calls[id].IsBackward()) continue;
    if (BeginsPass(run, id)) ++pass;
    passes[id] = pass;
  }
  return passes;
}

}  // namespace

// Whether a call writes a part of memory that nobody had written: the rest is no result.
bool Exposure::FillsNewMemory(const Graph& run, CallId id) {
  if (!run.calls[id].facts->in_place) return false;
  const auto takes = run.Takes(id);
  return std::any_of(takes.begin(), takes.end(), [&run](const Port& port) {
    return run.values[port.value].unwritten || !run.dump.AllocationOf(port.leaf).empty();
  });
}

// What other ranks receive is a result of this one.
void Exposure::AddGiven(const Graph& run, CallId id, std::vector<Sink>* out) const {
  const Record& record = run.dump.records[run.calls[id].record];
  const std::optional<Exchange> exchange = ExchangeOf(run.dump, record);
  if (!exchange) return;
  if (r_.IsOfTwoJoined()) return;  // the ranks of a joined run give nothing to anybody else
  for (const Port& port : run.Takes(id)) {
    if (PartOf(*exchange, record, run.dump.leaves[port.leaf]) == ExchangePart::kGiven)
      out->push_back({id, port.value, port.leaf, false, true});
  }
}

std::vector<Exposure::Sink> Exposure::SinksOf(const Graph& run) const {
  bool stepped = false;
  std::unordered_map<int32_t, CallId> complete;  // the last gradients of the parameters of a module
  std::unordered_map<std::string, CallId> updated;  // the last update of a parameter
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    const Call& call = run.calls[id];
    stepped |= call.kind == CallKind::kUpdate;
    if (call.kind == CallKind::kGradients) complete[call.path] = id;
    if (call.kind == CallKind::kUpdate) updated[std::string(call.parameter)] = id;
  }
  // What no optimizer takes stays in .grad after the step.
  const auto stays = [&](const Call& call, const Port& port) {
    const Record& record = run.dump.records[call.record];
    const auto id = static_cast<CallId>(&call - run.calls.data());
    const auto found =
        updated.find(ParameterOfGradient(record, LeafPath(run.dump.leaves[port.leaf], record)));
    return complete[call.path] == id &&
           (!stepped || (found != updated.end() && found->second < id));
  };
  // Asked once for each value: one content may be made and taken by all calls.
  constexpr char kNotAsked = 2;
  std::vector<char> left(run.values.size(), kNotAsked);
  const auto is_left = [&](ValueId v) {
    if (left[v] == kNotAsked) left[v] = run.IsLeft(v) ? 1 : 0;
    return left[v] == 1;
  };
  std::vector<Sink> out;
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    const Call& call = run.calls[id];
    if (call.facts->exchanges && call.kind == CallKind::kOperation) AddGiven(run, id, &out);
    const bool optimizer = call.kind == CallKind::kUpdate || call.kind == CallKind::kTotalNorm;
    const bool step = call.kind == CallKind::kUpdate && run.ApiOf(id).ends_with(".step");
    for (const Port& port : optimizer ? run.Takes(id) : std::span<const Port>()) {
      const Record& record = run.dump.records[call.record];
      if (LeafPlace(run.dump.leaves[port.leaf], record).starts_with("gradients."))
        out.push_back({id, port.value, port.leaf, false});
    }
    for (const Port& port : run.Makes(id)) {
      // Where no gradients of parameters were recorded, what nobody takes is a result of the step.
      const bool last = complete.empty() && !stepped && is_left(port.value) &&
                        (call.IsForward() || call.IsBackward()) && !FillsNewMemory(run, id);
      const Value& value = run.values[port.value];
      // A number that a program may show; of a loss AddLosses knows more.
      const bool number = !last && call.kind == CallKind::kOperation && call.backward == kNoId &&
                          value.IsFloat() && value.shape.is_scalar() && !value.plain &&
                          run.TakersOf(port.value).empty();
      const bool sink = call.kind == CallKind::kGradients ? stays(call, port)
                        : call.IsForward()                ? last || number
                                                          : optimizer || last;
      if (sink) out.push_back({id, port.value, port.leaf, step, number});
    }
  }
  return out;
}

void Exposure::FindSinks() {
  const Graph &t = r_.t, &g = r_.g;
  const bool t_complete = t.dump.complete;  // what a killed run did not record is not missing
  std::vector<Sink> mine, golden;
  ThreadPool::Default().Both([&] { mine = SinksOf(t); }, [&] { golden = SinksOf(g); });
  for (const Sink& sink : mine) {
    const Port port{.value = sink.value, .leaf = sink.leaf};
    const ValueId there = r_.AtPartner(port);
    // An operation of another framework may return more, as the statistics of a norm.
    if ((sink.paired || r_.of_two_frameworks) && there == kNoId) continue;
    if (t.calls[sink.call].IsOfParameters() && IsOfReorderedUnits(sink.value)) continue;
    if (r_.of(sink.value).strength < Strength::kNear) {
      bad_sinks_.push_back(sink.value);
      // What the target has elsewhere is not missing: a momentum that is the gradient itself.
      if (there != kNoId && !r_.Has(there)) bad_golden_.push_back(there);
    } else if (there != kNoId && !IsMovedByNoise(sink) &&
               (!r_.Fits(sink.value, there) || (!sink.paired && HasOtherForm(sink, there))) &&
               !IsOfAnotherPass(sink)) {
      Misplace(sink.call, sink.value);
    }
  }
  FindMemorySinks();
  for (const Sink& sink : golden) {
    if (r_.partner[sink.call] == kNoId && !sink.update && !sink.paired && !r_.of_two_frameworks &&
        !r_.Has(sink.value) && !g.values[sink.value].plain && t_complete)
      bad_golden_.push_back(sink.value);
    if (!sink.update || r_.partner[sink.call] != kNoId) continue;
    const bool known =
        std::any_of(g.Takes(sink.call).begin(), g.Takes(sink.call).end(), [&](const Port& port) {
          return r_.AtTarget(port.leaf) != kNoId ||
                 (!g.values[port.value].plain &&
                  t.WithContent(g.values[port.value].content) != kNoId);
        });
    if (known && (missing_steps_.empty() || missing_steps_.back() != sink.call))
      missing_steps_.push_back(sink.call);
  }
}

// Where the gradient of an update is nothing but rounding, one run may leave a weight as it was,
// and the other one may move it.
bool Exposure::IsMovedByNoise(const Sink& sink) const {
  if (!sink.update) return false;
  const Record& record = r_.t.dump.records[r_.t.calls[sink.call].record];
  const auto takes = r_.t.Takes(sink.call);
  return std::any_of(takes.begin(), takes.end(), [&](const Port& port) {
    return LeafPlace(r_.t.dump.leaves[port.leaf], record).starts_with("gradients.") &&
           r_.of(port.value).strength == Strength::kNear && r_.RelativeErrorOf(port.value) >= 1;
  });
}

// Rows in another order, of as many units as a weight that began with its rows in another order:
// its units are numbered anew, and what belongs to them is, too.
bool Exposure::IsOfReorderedUnits(ValueId v) const {
  const auto units = [&](ValueId w) {
    const auto extents = r_.t.values[w].shape.extents();
    return extents.empty() ? 1 : extents[0];
  };
  return r_.of(v).strength == Strength::kSame &&
         std::ranges::any_of(r_.t.NamedWeights(), [&](const auto& weight) {
           return r_.of(weight.first).strength == Strength::kSame &&
                  units(weight.first) == units(v);
         });
}

// Whether what several passes take or make of a parameter, as clipping, is that of another pass:
// passes stand in another order, or calls of one beside those of another one.
bool Exposure::IsOfAnotherPass(const Sink& sink) const {
  const Call& call = r_.t.calls[sink.call];
  if (!call.IsOfParameters() || call.IsBackward() || sink.update) return false;
  for (const auto ports : {r_.t.Takes(sink.call), r_.t.Makes(sink.call)}) {
    for (const Port& port : ports) {
      if (port.leaf == sink.leaf) return r_.IsOfAnotherPass(sink.call, port);
    }
  }
  return false;
}

// A result with the elements of w in another shape, dimensions of 1 aside, or in another kind of
// number. What belongs to a weight has the shape that the weight had when the step began: of Conv1D
// it is the transpose of Linear's.
bool Exposure::HasOtherForm(const Sink& sink, ValueId w) const {
  const Leaf& mine = r_.t.dump.leaves[sink.leaf];
  const Leaf& other = r_.g.dump.leaves[r_.PartnerLeaf(sink.leaf)];
  if (!mine.dtype.dtype() || !other.dtype.dtype()) return false;
  const CallKind kind = r_.t.calls[sink.call].kind;
  const bool of_weight = kind == CallKind::kUpdate || kind == CallKind::kGradients;
  return r_.t.values[sink.value].IsFloat() != r_.g.values[w].IsFloat() ||
         (!of_weight && r_.of(sink.value).golden == w && mine.shape.known() &&
          other.shape.known() && !mine.shape.SameWithoutOnes(other.shape));
}

// A right value of the golden at the place of another one. What its call takes may be wrong
// already.
void Exposure::Misplace(CallId call, ValueId v) {
  bool wrong = false;
  for (const Port& port : r_.t.Takes(call)) {
    if (r_.IsRight(port.value) || port.value == v) continue;
    bad_sinks_.push_back(port.value);
    wrong = true;
  }
  if (!wrong) misplaced_.emplace(call, v);
}

// Whether one run wrote a weight in code without records in the step before, and both left the
// same.
bool Exposure::IsWrittenElsewhere(ValueId weight) const {
  if (r_.carried.elsewhere.empty()) return false;
  const auto& named = r_.t.NamedWeights();
  return std::any_of(named.begin(), named.end(), [&](const auto& each) {
    return each.first == weight && r_.carried.elsewhere.count(each.second) > 0;
  });
}

// Whether the rows of v stand in another order because those of the data do: in memory they are the
// same entries.
bool Exposure::IsOfReorderedData(ValueId v) const {
  const Graph& t = r_.t;
  const auto reordered = [this](ValueId w) {
    return r_.of(w).strength == Strength::kSame && !r_.of(w).doubtful;
  };
  for (size_t steps = 0; steps < kMostCallsBack && reordered(v); ++steps) {
    const CallId maker = t.values[v].maker;
    if (maker == kNoId) return true;
    const auto takes = t.Takes(maker);
    const auto from = std::find_if(takes.begin(), takes.end(), [&](const Port& port) {
      return reordered(port.value) && t.values[port.value].maker < maker;
    });
    if (from == takes.end()) return false;
    v = from->value;
  }
  return false;
}

// A whole number that nobody reads counts calls: as many as were made.
bool Exposure::IsCounter(ValueId v) const {
  const Value& value = r_.t.values[v];
  return !value.IsFloat() && value.shape.is_scalar() && r_.t.TakersOf(v).empty();
}

// Memory into which 0, 1, 2, .. are written numbers the rows of a step: that each run numbers its
// own is no difference, and what the numbers lead to is judged where it is read.
bool Exposure::IsNumbering(const Graph& run, ValueId v) {
  if (v == kNoId || run.values[v].IsFloat()) return false;
  const auto counts = [&](const Port& port) {
    const Value& written = run.values[port.value];
    return port.value != v && written.plain && !written.IsFloat() && written.moments.low == 0 &&
           written.moments.high > 0;
  };
  return std::ranges::any_of(
      run.MakersOf(v), [&](CallId maker) { return std::ranges::any_of(run.Takes(maker), counts); });
}

// Whether calls that read the memory after one run's last recorded write read the same in the other
// run: there, code without records wrote it.
bool Exposure::IsReadAlike(const MemoryPair& memory) const {
  const Graph &t = r_.t, &g = r_.g;
  const ValueId v = memory.mine.last, w = memory.golden.last;
  if (memory.golden.call == kNoId) {
    return r_.IsRight(v) && std::ranges::any_of(t.TakersOf(v), [&](const Taker& use) {
             const ValueId there = r_.AtPartner(t.taken[use.port]);
             return use.call > memory.mine.call && there != kNoId && r_.Fits(v, there);
           });
  }
  return std::ranges::any_of(g.TakersOf(w), [&](const Taker& use) {
    const ValueId there = r_.AtTarget(g.taken[use.port].leaf);
    return use.call > memory.golden.call && there != kNoId && r_.IsRight(there) &&
           r_.Fits(there, w);
  });
}

// What memory holds in the end is what the golden's holds.
void Exposure::FindMemorySinks() {
  std::unordered_set<ValueId> mine, golden;  // what the next step finds in both runs
  for (const NextWeight& each : r_.NextWeights()) {
    if (each.agrees) mine.insert(each.mine), golden.insert(each.golden);
    if (each.agrees || each.mine == kNoId || IsOfReorderedData(each.mine) ||
        IsOfReorderedUnits(each.mine))
      continue;
    if (IsNumbering(r_.t, each.mine) && IsNumbering(r_.g, each.golden)) continue;
    if (r_.of(each.mine).strength < Strength::kNear) {
      bad_sinks_.push_back(each.mine);
      if (each.golden != kNoId) bad_golden_.push_back(each.golden);
    } else if (each.golden != kNoId && !r_.Fits(each.mine, each.golden)) {
      // Or it is what the step began with, or what the golden had there, too, before a later call.
      const Value& value = r_.t.values[each.mine];
      const ValueId there = value.maker == kNoId ? kNoId : r_.AtPartner(r_.t.made[value.port]);
      const bool lasts = value.maker == kNoId || (there != kNoId && r_.Fits(each.mine, there));
      if (!lasts) Misplace(value.maker, each.mine);
      if (lasts) bad_golden_.push_back(each.golden);
    }
  }
  for (const MemoryPair& each : PairMemories(r_)) {
    const ValueId v = each.mine.last, w = each.golden.last;
    if (r_.t.values[v].unwritten || (w != kNoId && r_.g.values[w].unwritten)) continue;
    if (mine.count(v) > 0 || (w != kNoId && golden.count(w) > 0)) continue;
    const bool one_writes = each.mine.call == kNoId || each.golden.call == kNoId;
    if (one_writes && IsWrittenElsewhere(each.mine.root)) continue;
    if (IsOfReorderedData(v) || IsOfReorderedUnits(v) || IsCounter(v)) continue;
    if (IsNumbering(r_.t, v) && (w == kNoId || IsNumbering(r_.g, w))) continue;
    if (one_writes && w != kNoId && IsReadAlike(each)) continue;
    if (r_.of(v).strength < Strength::kNear) {
      bad_sinks_.push_back(v);
      if (w != kNoId) bad_golden_.push_back(w);
    } else if (w != kNoId && !r_.Fits(v, w)) {
      if (each.mine.call != kNoId) Misplace(each.mine.call, v);
      if (each.mine.call == kNoId) bad_golden_.push_back(w);
    }
  }
}

// The scalars from which backward passes begin.
std::vector<Exposure::Loss> Exposure::LossesOf(const Graph& run) {
  std::vector<Loss> out;
  for (const Call& call : run.calls) {
    if (call.kind != CallKind::kOperation || call.backward == kNoId || call.makes != 1) continue;
    const auto id = static_cast<CallId>(&call - run.calls.data());
    const auto given = run.Takes(call.backward);
    const ValueId loss = run.Makes(id)[0].value;
    if (given.size() != 1 || !run.values[given[0].value].plain ||
        !run.values[loss].shape.is_scalar())
      continue;
    // The constant from which a pass begins may be what other calls made, too.
    const bool arrives =
        run.values[given[0].value].maker == kNoId && run.PartsOf(given[0].value).empty();
    if (arrives || BeginsPass(run, call.backward)) out.push_back({loss, call.backward});
  }
  return out;
}

// Losses of both runs, if their sums differ. Only of a step that differs: a loss may have a
// constant. And only of backward passes in which something is exposed: what a pass that is right
// began with, the loss times 64, say, did not make the step wrong.
void Exposure::AddLosses() {
  const std::vector<Loss> mine = LossesOf(r_.t), right = LossesOf(r_.g);
  double sum = 0, golden = 0, bound = 4 * kDigits;
  for (const auto& [v, backward] : mine) {
    sum += r_.t.values[v].moments.mean;
    bound = std::max(bound, r_.of(v).bound);
  }
  for (const auto& [w, backward] : right) golden += r_.g.values[w].moments.mean;
  if (!(std::abs(sum - golden) > bound * std::abs(golden))) return;
  if (mine.size() == right.size()) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (r_.IsRight(mine[i].value) && !r_.Fits(mine[i].value, right[i].value))
        other_losses_.emplace_back(mine[i].value, right[i].value);
    }
  }
  for (const ValueId v : InExposedPass(r_.t, mine, exposed_)) {
    if (r_.of(v).strength < Strength::kNear) bad_sinks_.push_back(v);
  }
  for (const ValueId w : InExposedPass(r_.g, right, exposed_golden_)) {
    if (!r_.Has(w)) bad_golden_.push_back(w);
  }
}

// Whether a loss is surely wrong by less than the gradients of the step may be off: gradients in
// bfloat16 do not show what a loss in float32 does.
bool Exposure::LossesTellMore() const {
  const std::vector<Loss> mine = LossesOf(r_.t), right = LossesOf(r_.g);
  if (mine.empty() || mine.size() != right.size()) return false;
  double off = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const ValueId v = mine[i].value, w = right[i].value;
    if (r_.IsRight(v) || r_.Has(w)) continue;
    const double error = r_.ApartOf(v, w, r_.Terms(v)).in_order;
    if (error > kSurely * r_.of(v).bound) off = std::max(off, error);
  }
  if (off == 0) return false;
  bool judged = false;
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    const Call& call = r_.t.calls[id];
    if (call.kind != CallKind::kUpdate) continue;
    for (const Port& port : r_.t.Takes(id)) {
      const std::string_view place =
          LeafPlace(r_.t.dump.leaves[port.leaf], r_.t.dump.records[call.record]);
      if (!place.starts_with("gradients.") || r_.t.values[port.value].plain) continue;
      const Relation& r = r_.of(port.value);
      if (r.strength == Strength::kEqual || !(r.bound > off)) return false;
      judged = true;
    }
  }
  return judged;
}

// The losses in whose backward passes something is exposed; all, if nothing is in any pass.
std::vector<ValueId> Exposure::InExposedPass(const Graph& run, const std::vector<Loss>& losses,
                                             const Causes& exposed) {
  const std::vector<int32_t> pass_of = PassesOf(run);
  std::unordered_set<int32_t> passes;
  const auto add = [&](ValueId v) {
    std::unordered_set<int32_t> of_value;
    for (const CallId maker : run.MakersOf(v)) {
      if (pass_of[maker] >= 0) of_value.insert(pass_of[maker]);
    }
    // The same numbers may come out of several passes: these tell nothing.
    if (of_value.size() == 1) passes.insert(*of_value.begin());
  };
  for (const ValueId v : exposed.values()) {
    add(v);
    for (const ValueId part : run.PartsOf(v)) add(part);
  }
  std::vector<ValueId> out;
  for (const auto& [loss, backward] : losses) {
    if (passes.empty() || passes.count(pass_of[backward]) > 0) out.push_back(loss);
  }
  return out;
}

}  // namespace msprobe::compare::relations
