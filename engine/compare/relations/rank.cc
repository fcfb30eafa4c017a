// Which of the candidates of expose.h is the first divergence, and what differs where nothing is
// wrong beyond rounding.
#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>
#include <utility>

#include "engine/base/threads.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
namespace {

constexpr size_t kMostWeighed = 32;  // candidates that are weighed against each other

}  // namespace

// The values that are made of each value.
Lists<ValueId> Exposure::Reversed(const Causes& graph, size_t values) {
  Lists<ValueId> out;
  out.BuildOf(values, [&graph](const auto& add) {
    for (const ValueId v : graph.values()) {
      for (const ValueId w : graph.Of(v)) add(w, v);
    }
  });
  return out;
}

// Exposed values that have a partner and do not agree.
std::vector<ValueId> Exposure::Contradictions() const {
  std::vector<ValueId> out;
  for (const ValueId v : exposed_.values()) {
    const Relation& r = r_.of(v);
    if (r.strength == Strength::kNone && r.golden != kNoId && r.error < 1e9) out.push_back(v);
  }
  return out;
}

// The contradictions that follow from a candidate.
Places Exposure::Explained(const Candidate& candidate, const Lists<ValueId>& of_target,
                           const Lists<ValueId>& of_golden,
                           std::span<const ValueId> contradictions) const {
  const auto reached = [](ValueId from, const Lists<ValueId>& effects, size_t values) {
    if (from == kNoId) return std::vector<char>();
    std::vector<char> known(values, 0);
    std::vector<ValueId> todo;
    const auto reach = [&](ValueId v) {
      if (known[v] != 0) return;
      known[v] = 1;
      todo.push_back(v);
    };
    reach(from);
    while (!todo.empty()) {
      const ValueId v = todo.back();
      todo.pop_back();
      for (const ValueId next : effects.Of(v)) reach(next);
    }
    return known;
  };
  const bool golden = candidate.call == kNoId && candidate.golden != kNoId;
  const auto mine =
      reached(golden ? candidate.shown_by : candidate.value, of_target, r_.t.values.size());
  const auto other = reached(golden ? candidate.value : kNoId, of_golden, r_.g.values.size());
  Places out(contradictions.size());
  for (size_t i = 0; i < contradictions.size(); ++i) {
    const ValueId v = contradictions[i];
    if ((!mine.empty() && mine[v] != 0) || (!other.empty() && other[r_.of(v).golden] != 0))
      out.Add(i);
  }
  return out;
}

// Whether the call itself made something else of right values, far beyond rounding, or an optimizer
// began the step with another state.
bool Exposure::IsProven(const Candidate& candidate) const {
  if (!candidate.sure || candidate.call == kNoId ||
      r_.t.calls[candidate.call].kind == CallKind::kGradients)
    return false;
  if (candidate.cause == Cause::kMadeDifferently) return true;
  const Relation& r = r_.of(candidate.value);
  return (candidate.cause == Cause::kAnotherResult || IsState(candidate.value)) &&
         r.error > kSurely * r.bound;
}

// `made_of_it`: what comes from nowhere was made, by code without records, of what an earlier call
// made, and does not explain that call.
bool Exposure::GivesWay(const Weighed& all, size_t i, bool made_of_it) const {
  const auto& [found, effects, exchanges] = all;
  const auto explains = [&all](size_t j, size_t k) {
    return all.effects[j].Includes(all.effects[k]);
  };
  for (size_t j = 0; j < found.size(); ++j) {
    const Candidate &a = found[i], &b = found[j];
    if (i == j) continue;
    // A right value at another place has no effects that are known: other ranks may have them.
    const bool unknown = exchanges && effects[i].empty() && a.call != kNoId && r_.IsRight(a.value);
    const bool from_it = made_of_it && b.cause == Cause::kNoCallMadeIt &&
                         a.cause != Cause::kNoCallMadeIt && a.order < b.order;
    const bool within = !from_it && explains(j, i) && !(unknown && a.order < b.order);
    const bool less =
        within && (effects[i].size() < effects[j].size() || a.Evidence() < b.Evidence());
    if (less && (b.Evidence() != 1 || (a.Evidence() == 0 && b.order < a.order))) return true;
    // Of a call that only one run makes nothing tells that it is wrong but what it leads to.
    const bool weighs = b.order < a.order || (IsProven(b) && !explains(i, j));
    const bool little = a.Evidence() == 0 || (a.Evidence() == 1 && a.call == kNoId && IsProven(b));
    if (little && b.Evidence() > 0 && weighs && effects[i].Meets(effects[j])) return true;
  }
  return false;
}

// The earliest first. But another way to compute the same meets the wrong value somewhere, and
// looks wrong itself from there on: one whose effects another one explains, with more besides,
// gives way.
std::vector<Candidate> Exposure::Rank(std::vector<Candidate> found) {
  if (found.size() < 2) return found;
  const bool exchanges = std::any_of(r_.t.calls.begin(), r_.t.calls.end(),
                                     [](const Call& call) { return call.facts->exchanges; });
  const size_t n = std::min(found.size(), kMostWeighed);
  Lists<ValueId> of_target, of_golden;
  std::vector<ValueId> contradictions;
  ThreadPool::Default().Both([&] { of_target = Reversed(exposed_, r_.t.values.size()); },
                             [&] {
                               of_golden = Reversed(exposed_golden_, r_.g.values.size());
                               contradictions = Contradictions();
                             });
  Weighed all{std::span(found).first(n), std::vector<Places>(n), exchanges};
  ThreadPool::Default().ParallelFor(n, [&](size_t i) {
    all.effects[i] = Explained(found[i], of_target, of_golden, contradictions);
  });
  const auto ranked = [&](bool made_of_it) {
    std::vector<Candidate> first, later;
    for (size_t i = 0; i < found.size(); ++i)
      (i < n && GivesWay(all, i, made_of_it) ? later : first).push_back(found[i]);
    const bool speaks = std::ranges::any_of(first, std::mem_fn(&Candidate::Evidence));
    first.insert(first.end(), later.begin(), later.end());
    return std::pair(std::move(first), speaks);
  };
  // Where nothing speaks for any that is left, it may be that all others gave way to such values.
  auto [order, speaks] = ranked(false);
  return speaks ? order : ranked(true).first;
}

// A module is as wrong as the calls inside of it: where one of these is a candidate, too, it says
// more.
void Exposure::PreferInside() {
  if (candidates.empty()) return;
  const Candidate& first = candidates.front();
  const auto is_module = [&](const Graph& run, CallId id) {
    return id != kNoId && run.calls[id].IsModule();
  };
  if (!is_module(r_.t, first.call)) return;
  const auto inside = [](const Graph& run, CallId id, CallId module) {
    if (id == kNoId || module == kNoId || id == module) return false;
    const Call& around = run.calls[module];
    for (CallId at = run.calls[id].parent; at != kNoId; at = run.calls[at].parent) {
      if (at == module || at == around.forward || at == around.backward) return true;
    }
    return false;
  };
  const auto finer = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return !is_module(r_.t, c.call) && !is_module(r_.g, c.call == kNoId ? c.golden : kNoId) &&
           (inside(r_.t, c.call, first.call) || inside(r_.g, c.golden, first.golden));
  });
  if (finer != candidates.end()) std::rotate(candidates.begin(), finer, finer + 1);
}

// A result that is hardly beyond its bound, of values that are near: if they were made of what the
// second look finds, that is the cause, and this its growth.
void Exposure::PreferBirth(bool alike) {
  const Candidate& first = candidates.front();
  if (!alike || first.cause != Cause::kAnotherResult || first.call == kNoId) return;
  const Relation& r = r_.of(first.value);
  if (!(r.error <= kSurely * r.bound)) return;
  const std::vector<Candidate> births = FirstBits(alike);
  if (births.empty() || births[0].order >= first.order) return;
  std::unordered_set<ValueId> known;
  std::vector<ValueId> todo = {first.value};
  while (!todo.empty()) {
    const ValueId v = todo.back();
    todo.pop_back();
    if (!known.insert(v).second) continue;
    const Inputs inputs = r_.t.InputsOf(v, /*saved=*/true);
    todo.insert(todo.end(), inputs.begin(), inputs.end());
  }
  if (known.count(births[0].value) > 0) candidates.insert(candidates.begin(), births[0]);
}

// Whether a value carries a gradient is part of it: where gradients differ, a call that takes a
// value without one, where its partner takes it with one, takes something else.
Candidate Exposure::WhereCut(const Candidate& candidate) {
  const Graph &t = r_.t, &g = r_.g;
  // Or a gradient that an optimizer takes, which no recorded call made.
  const bool arrives = candidate.cause == Cause::kNoCallMadeIt && candidate.call != kNoId &&
                       t.calls[candidate.call].kind == CallKind::kUpdate;
  const bool backward = candidate.call != kNoId ? t.calls[candidate.call].IsBackward() || arrives
                        : candidate.golden != kNoId ? g.calls[candidate.golden].IsBackward()
                                                    : false;
  if (!backward || candidate.cause == Cause::kLeftGradient) return candidate;
  // A gradient that only the target computes, or a whole backward call of a forward call of both.
  const auto only_forward_is_paired = [&] {
    const CallId forward = t.calls[candidate.call].forward;
    return forward != kNoId && r_.pair[forward] != kNoId &&
           g.calls[r_.pair[forward]].backward == kNoId;
  };
  const bool only_here =
      candidate.call != kNoId && t.values[candidate.value].maker == candidate.call &&
      (candidate.golden != kNoId ? r_.AtPartner(t.made[t.values[candidate.value].port]) == kNoId
                                 : only_forward_is_paired());
  std::optional<Candidate>& cut = only_here ? cut_with_ : cut_;
  if (!cut) cut = FirstCut(only_here);
  return cut->call == kNoId ? candidate : *cut;
}

// The first call of the forward pass that takes a right value without its gradient, or `with` one
// that the golden's does not carry; without a call: there is none.
Candidate Exposure::FirstCut(bool with) const {
  const Graph& t = r_.t;
  const std::string_view here = with ? "True" : "False", there = with ? "False" : "True";
  Candidate first;
  CallId begins = kNoId;
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const Call& call = t.calls[id];
    if (r_.pair[id] == kNoId || !call.IsForward()) continue;
    for (const Port& port : t.Takes(id)) {
      if (t.dump.leaves[port.leaf].requires_grad != here || t.values[port.value].plain ||
          !r_.IsRight(port.value) || !r_.Fits(port.value, r_.AtPartner(port)) ||
          r_.g.dump.leaves[r_.PartnerLeaf(port.leaf)].requires_grad != there)
        continue;
      // The outermost module of those that begin there.
      if (begins == kNoId || call.begins < begins || (call.begins == begins && call.IsModule())) {
        begins = call.begins;
        first = {.call = id,
                 .golden = r_.pair[id],
                 .value = port.value,
                 .cause = with ? Cause::kWithGradient : Cause::kWithoutGradient,
                 .order = static_cast<double>(id),
                 .sure = true};
      }
    }
  }
  return first;
}

// Neither the dtypes of the weights, but for a few, nor autocast and the default dtype differ.
// Where a dump does not say whether autocast was on, products of another dtype than their arguments
// show it.
bool Exposure::SamePolicy() const {
  const auto casts = [](const Graph& run) {
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      if (run.calls[id].kind != CallKind::kOperation ||
          run.calls[id].facts->kind != OperationClass::kContraction)
        continue;
      double in = 0, out = 1;
      for (const Port& port : run.Takes(id)) in = std::max(in, run.values[port.value].roundoff());
      for (const Port& port : run.Makes(id)) {
        if (run.values[port.value].IsFloat())
          out = std::min(out, run.values[port.value].roundoff());
      }
      if (in > 0 && out < 1 && out > in) return true;
    }
    return false;
  };
  constexpr int kMany = 4;  // of so many weights one is another dtype
  int weights = 0, others = 0;
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    for (const Port& port : r_.t.Takes(id)) {
      if (!r_.t.IsWeight(port.value)) continue;
      const ValueId w = r_.AtPartner(port);
      if (w == kNoId) continue;
      ++weights;
      others += r_.t.values[port.value].dtype.dtype() != r_.g.values[w].dtype.dtype();
    }
  }
  if (kMany * others > weights) return false;
  if (policies_.kind != Policies::Kind::kUnknown) return policies_.kind != Policies::Kind::kWhole;
  return casts(r_.t) == casts(r_.g);
}

// A call that takes right values, and makes another dtype of them because autocast or the default
// dtype is another one here, and not in all of the run.
std::optional<Candidate> Exposure::UnderOtherPolicy(CallId id) const {
  const Graph &t = r_.t, &g = r_.g;
  const CallId partner = r_.pair[id];
  const int32_t mine = t.calls[id].record, other = g.calls[partner].record;
  if (t.dump.PrecisionOf(mine) == g.dump.PrecisionOf(other)) return std::nullopt;
  const auto takes = t.Takes(id);
  if (!std::all_of(takes.begin(), takes.end(), [this](const Port& port) {
        return r_.IsRight(port.value) || r_.t.values[port.value].plain;
      }))
    return std::nullopt;
  for (const Port& port : t.Makes(id)) {
    const ValueId w = r_.AtPartner(port);
    const bool elsewhere = r_.IsRight(port.value) && r_.of(port.value).golden != w;
    if (w == kNoId || elsewhere || !t.values[port.value].IsFloat() ||
        t.values[port.value].dtype == g.values[w].dtype)
      continue;
    return Candidate{.call = id,
                     .golden = partner,
                     .value = port.value,
                     .cause = Cause::kOtherPolicy,
                     .order = static_cast<double>(id)};
  }
  return std::nullopt;
}

// A call that takes other integers than its partner, where they were not made of floats: rounding
// may turn a comparison.
std::optional<Candidate> Exposure::OtherIntegers(CallId id) {
  const Graph& t = r_.t;
  const auto makes = t.Makes(id);
  const auto is_float = [&t](const Port& port) { return t.values[port.value].IsFloat(); };
  // What is only moved has its effect where it is used.
  if (t.calls[id].facts->Moves() && std::none_of(makes.begin(), makes.end(), is_float))
    return std::nullopt;
  for (const Port& port : t.Takes(id)) {
    const Value& x = t.values[port.value];
    const ValueId w = r_.AtPartner(port);
    if (w == kNoId || x.plain || x.maker == kNoId || x.IsFloat() || x.dtype.dtype() == DType::kBool)
      continue;
    const Value& y = r_.g.values[w];
    if (x.dtype.dtype() != y.dtype.dtype() || x.shape.view() != y.shape.view()) continue;
    if (r_.IsRight(port.value)) {
      // Right ones, in place of others that only the golden makes.
      const bool only_there = y.maker != kNoId && r_.partner[y.maker] == kNoId && !y.plain;
      if (!only_there || r_.Has(w) || r_.Fits(port.value, w)) continue;
      return Candidate{.call = id,
                       .golden = r_.pair[id],
                       .value = port.value,
                       .cause = Cause::kAnotherInput,
                       .order = static_cast<double>(id)};
    }
    const Inputs inputs = t.InputsOf(port.value, false);
    // Others that it was made of are named in its place, or came from outside; rows in another
    // order, or in other parts, have other numbers, and so has memory that is not full yet.
    const auto other = [&](ValueId v) {
      return t.values[v].IsFloat() || !r_.IsRight(v) || r_.of(v).strength == Strength::kSame ||
             r_.IsPart(v) || t.values[v].unwritten;
    };
    if (std::any_of(inputs.begin(), inputs.end(), other) || TakesAnother(x.maker) ||
        PassesOtherSizes(x.maker))
      continue;
    // What its partner takes went to another pass, and something else came here.
    const auto is_taken = [&](ValueId v) { return r_.Fits(v, w); };
    if (r_.Has(w) && std::none_of(inputs.begin(), inputs.end(), is_taken)) continue;
    return Candidate{.call = x.maker,
                     .golden = r_.pair[x.maker],
                     .value = port.value,
                     .cause = Cause::kOtherIntegers,
                     .order = static_cast<double>(x.maker)};
  }
  return std::nullopt;
}

// The coarsest rounding on the way to each value of a run.
std::vector<double> Exposure::Coarsest(const Graph& run) {
  std::vector<double> out;
  for (const Value& value : run.values) out.push_back(value.roundoff());
  for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
    for (const Port& port : run.Takes(id)) {  // a sum of gradients is made by no call
      for (const ValueId part : run.PartsOf(port.value))
        out[port.value] = std::max(out[port.value], out[part]);
    }
    for (const Port& port : run.Makes(id)) {
      if (run.values[port.value].maker != id || !run.values[port.value].IsFloat()) continue;
      for (const ValueId w : run.InputsOf(port.value, false))
        out[port.value] = std::max(out[port.value], out[w]);
    }
  }
  return out;
}

// A call that makes other numbers than its partner because a value was rounded to a coarser dtype:
// one that it takes, all on the way to it, or what it makes.
std::optional<Candidate> Exposure::MadeOfCoarser(CallId id, const std::vector<double>& mine,
                                                 const std::vector<double>& golden) const {
  for (const Port& port : r_.t.Makes(id)) {
    const ValueId v = port.value, w = r_.AtPartner(port);
    if (w == kNoId || r_.of(v).strength != Strength::kNear || r_.of(v).error == 0) continue;
    const Value &x = r_.t.values[v], &y = r_.g.values[w];
    const bool in_coarser = x.roundoff() > y.roundoff() && y.IsFloat();
    if (!in_coarser && x.dtype.dtype() != y.dtype.dtype()) continue;
    if (const auto cast = CastFor(id)) return cast;
    if (!(mine[v] > golden[w])) continue;
    return Candidate{.call = id,
                     .golden = r_.pair[id],
                     .value = v,
                     .cause = Cause::kCoarser,
                     .order = static_cast<double>(id)};
  }
  return std::nullopt;
}

// A call that the golden does not make, and that rounds what the partner of `id` takes as it is;
// all else that `id` takes has the golden's bits.
std::optional<Candidate> Exposure::CastFor(CallId id) const {
  const auto equal = [this](const Port& port) {
    return r_.t.values[port.value].plain || r_.of(port.value).strength == Strength::kEqual;
  };
  std::optional<Candidate> found;
  for (const Port& port : r_.t.Takes(id)) {
    const ValueId w = r_.AtPartner(port);
    const Value& given = r_.t.values[port.value];
    const bool casts = w != kNoId && given.maker != kNoId &&
                       given.roundoff() > r_.g.values[w].roundoff() &&
                       (r_.pair[given.maker] == kNoId || r_.OtherApi(given.maker)) &&
                       std::ranges::any_of(r_.t.Takes(given.maker), [&](const Port& taken) {
                         return r_.of(taken.value).golden == w && equal(taken);
                       });
    if (casts && !found) {
      found = Candidate{.call = given.maker,
                        .value = port.value,
                        .cause = Cause::kCoarser,
                        .order = static_cast<double>(given.maker)};
    } else if (!casts && !equal(port)) {
      return std::nullopt;
    }
  }
  return found;
}

// A call whose results the golden makes by the same operation of the same numbers, but in a finer
// dtype, between two casts: `softmax(x.float()).to(x.dtype)`.
std::optional<Candidate> Exposure::FinerBetweenCasts(CallId id) const {
  const Graph &t = r_.t, &g = r_.g;
  const auto before_cast = [&](ValueId w) {
    const CallId maker = g.values[w].maker;
    if (maker == kNoId || g.calls[maker].kind != t.calls[id].kind) return w;
    const Inputs inputs = g.InputsOf(w, false);
    if (inputs.size() != 1) return w;
    const ValueId from = *inputs.begin();
    const Value &made = g.values[w], &taken = g.values[from];
    const bool casts = made.dtype != taken.dtype && made.shape.view() == taken.shape.view() &&
                       std::abs(made.moments.Rms() - taken.moments.Rms()) <=
                           kOwnRoundings * made.roundoff() * taken.moments.Rms();
    return casts ? from : w;
  };
  const auto takes = t.Takes(id);
  for (const Port& port : t.Makes(id)) {
    const Relation& r = r_.of(port.value);
    if (r.strength != Strength::kNear || r.golden == kNoId) continue;
    const ValueId finer = before_cast(r.golden);
    const CallId other = g.values[finer].maker;
    if (other == kNoId || g.calls[other].kind != t.calls[id].kind ||
        BaseApi(g.ApiOf(other)) != BaseApi(t.ApiOf(id)) ||
        g.values[finer].roundoff() >= t.values[port.value].roundoff())
      continue;
    const auto given = g.Takes(other);
    bool casts = false;  // what it takes; autocast casts what it makes
    const bool same = std::equal(
        takes.begin(), takes.end(), given.begin(), given.end(), [&](const Port& a, const Port& b) {
          const Value &x = t.values[a.value], &y = g.values[b.value];
          if (x.plain && y.plain) return true;
          casts |= x.roundoff() > y.roundoff();
          const Relation& argument = r_.of(a.value);
          return argument.strength == Strength::kEqual && argument.golden == before_cast(b.value);
        });
    if (!same || !casts) continue;
    return Candidate{.call = id,
                     .golden = other,
                     .value = port.value,
                     .cause = Cause::kCoarser,
                     .order = static_cast<double>(id)};
  }
  return std::nullopt;
}

// A call that takes the numbers of its partner, and makes others within rounding, because it was
// given another argument or computes in a coarser dtype.
std::optional<Candidate> Exposure::BornHere(CallId id, bool alike) {
  const Graph &t = r_.t, &g = r_.g;
  const CallId forward = t.calls[id].kind == CallKind::kBackward ? t.calls[id].forward : id;
  if (forward == kNoId || r_.pair[forward] == kNoId) return std::nullopt;
  const auto same = [&](const Port& port) {
    const Relation& r = r_.of(port.value);
    const ValueId w = r_.AtPartner(port);
    const bool same_rows = r.strength == Strength::kSame && r.proven;
    const bool exact = r.strength == Strength::kEqual ||
                       (r.strength == Strength::kNear && (r.error == 0 || !alike)) ||
                       (same_rows && r.error <= kOwnRoundings * kDouble);
    return (exact && (w == kNoId || r_.Fits(port.value, w))) || t.values[port.value].plain;
  };
  const auto takes = t.Takes(id), saved = t.Takes(forward);
  if (!std::all_of(takes.begin(), takes.end(), same) ||
      !std::all_of(saved.begin(), saved.end(), same))
    return std::nullopt;
  const Port* other = nullptr;
  bool coarser = false;
  for (const Port& port : t.Makes(id)) {
    if (r_.of(port.value).strength == Strength::kEqual) continue;
    if (other == nullptr) other = &port;
    const ValueId w = r_.AtPartner(port);
    if (w == kNoId) continue;
    const Value &x = t.values[port.value], &y = g.values[w];
    if (x.shape.view() != y.shape.view()) return std::nullopt;
    coarser |= x.roundoff() > y.roundoff() && y.roundoff() > 0;
  }
  if (other == nullptr) return std::nullopt;
  const Relation& made = r_.of(other->value);
  // Arguments of two operations have nothing to do with each other.
  const bool argument =
      !r_.OtherApi(forward) && r_.OtherScalars(forward) && !PassesOtherSizes(forward);
  // What adds up rows that stand in another order has other bits for that.
  const auto adds_up_rows = [&](const Port& port) {
    const auto rows = t.values[port.value].shape.extents(),
               left = t.values[other->value].shape.extents();
    return r_.of(port.value).strength == Strength::kSame &&
           (left.empty() || rows.empty() || left[0] != rows[0] || id != forward);
  };
  if (std::any_of(saved.begin(), saved.end(), adds_up_rows)) return std::nullopt;
  const bool other_rows = made.strength == Strength::kSame && made.error > 0;
  // A value that the golden makes elsewhere has other bits than this call's because other calls
  // make it.
  const ValueId here = r_.AtPartner(*other);
  if ((made.strength != Strength::kNear && !other_rows) || made.golden == kNoId ||
      (here != kNoId && here != made.golden) || (!argument && !(coarser && alike)))
    return std::nullopt;
  return Candidate{.call = id,
                   .golden = r_.pair[id],
                   .value = other->value,
                   .cause = argument ? Cause::kMadeDifferently : Cause::kCoarser,
                   .order = static_cast<double>(id)};
}

// The first optimizer whose settings are others than the golden's: noise in the gradients, which
// may move a weight by as much, does not excuse them.
std::optional<Candidate> Exposure::OtherSettings() const {
  const Comparison& c = r_.c;
  std::vector<int32_t> pair_of(r_.t.dump.records.size(), -1);
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (c.pairs[p].matched()) pair_of[c.pairs[p].target] = static_cast<int32_t>(p);
  }
  int32_t asked = kNoId;
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    const Call& call = r_.t.calls[id];
    if (call.kind != CallKind::kUpdate || call.record == asked || pair_of[call.record] < 0 ||
        r_.pair[id] == kNoId || r_.t.Makes(id).empty())
      continue;
    asked = call.record;
    const std::vector<HyperParameter> found = DifferingHyperParameters(c, pair_of[call.record]);
    if (std::none_of(found.begin(), found.end(), [](const HyperParameter& h) {
          return !h.target.empty() && !h.golden.empty();
        }))
      continue;
    return Candidate{.call = id,
                     .golden = r_.pair[id],
                     .value = r_.t.Makes(id)[0].value,
                     .cause = Cause::kMadeDifferently,
                     .order = static_cast<double>(id)};
  }
  return std::nullopt;
}

// In one environment other bits have a cause: another argument, a coarser dtype, other integers.
// Where there is none of these, another kernel computes, or the code was written otherwise.
// `alike`: the runs have one environment and one precision policy; otherwise only another argument
// is surely such a cause.
std::vector<Candidate> Exposure::FirstBits(bool alike) {
  const std::vector<double> mine = alike ? Coarsest(r_.t) : std::vector<double>();
  const std::vector<double> golden = alike ? Coarsest(r_.g) : std::vector<double>();
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    const CallKind kind = r_.t.calls[id].kind;
    if (alike && (kind == CallKind::kOperation || kind == CallKind::kBackward)) {
      if (const auto coarser = FinerBetweenCasts(id)) return {*coarser};
    }
    if ((kind != CallKind::kOperation && kind != CallKind::kBackward &&
         kind != CallKind::kUpdate) ||
        r_.pair[id] == kNoId)
      continue;
    std::optional<Candidate> found;
    if (kind == CallKind::kOperation && policies_.kind == Policies::Kind::kInPlaces)
      found = UnderOtherPolicy(id);
    if (!found && kind == CallKind::kOperation && alike) found = OtherIntegers(id);
    if (!found && kind == CallKind::kOperation && alike) found = MadeOfCoarser(id, mine, golden);
    if (!found) found = BornHere(id, alike);
    if (found) return {*found};
  }
  if (const auto found = OtherSettings()) return {*found};
  return {};
}

}  // namespace msprobe::compare::relations
