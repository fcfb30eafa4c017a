// Who is to blame for an exposed value of expose.h: the call that made it, or one that should have
// made what that call takes.
#include <algorithm>
#include <iterator>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
// The call makes, or takes, the wrong value v. If it takes something else than its partner, then
// who should have made that is to blame, if nobody made it.
Candidate Exposure::Origin(CallId call, ValueId v, std::vector<CallId> seen) {
  const Graph& t = r_.t;
  const auto was_seen = [&](CallId id) {
    return std::find(seen.begin(), seen.end(), id) != seen.end();
  };
  const CallId golden = r_.pair[call];
  if (seen.size() >= kMostCallsBack) return Named(call, v, Cause::kAnotherResult);
  if (golden == kNoId) {
    if (auto found = LeftAsItWas(call, v, seen)) return *found;
    return Named(call, v, Cause::kOnlyHere);
  }
  seen.push_back(call);
  for (const Port& port : t.Takes(call)) {
    const ValueId w = r_.AtPartner(port), x = port.value;
    if (w == kNoId || r_.Fits(x, w)) continue;
    if (auto left = LeftIn(x); left && t.calls[call].kind == CallKind::kUpdate) return *left;
    if (auto constant = ConstantInstead(call, x, w, v)) return *constant;
    const auto found = WhoShouldMake(x, w, call, v, seen);
    const bool crossed = found && found->other_pass && Errs(call);
    if (found && !crossed) return *found;
    const bool parameter = t.dump.leaves[port.leaf].slot == Slot::kParameter;
    if (parameter || (t.IsWeight(x) && t.values[x].maker == kNoId && !r_.IsRight(x)))
      return Named(call, x, Cause::kAnotherWeight, true);
    // Nobody makes what the golden passes here, and only the target makes what it passes.
    const CallId maker = t.values[x].maker;
    if (maker != kNoId && maker < call && r_.pair[maker] == kNoId && !t.calls[maker].IsModule() &&
        !OnlyPairsUp(maker) && r_.g.values[w].maker == kNoId && r_.g.PartsOf(w).empty())
      return Named(maker, v, Cause::kOnlyHere, true);
    if (const CallId between = MakerBetween(x, w, call); between != kNoId)
      return Named(between, v, Cause::kOnlyHere, true);
    if (r_.IsRight(x)) {
      Candidate candidate = Named(WhereTaken(call, x), v, Cause::kAnotherInput);
      candidate.other_pass = crossed;
      return candidate;
    }
  }
  // A gradient is made of what the forward call took, too.
  if (const CallId forward = t.calls[call].forward; t.calls[call].kind == CallKind::kBackward &&
                                                    forward != kNoId && !was_seen(forward) &&
                                                    TakesStale(forward))
    return Origin(forward, v, std::move(seen));
  const bool argued = !r_.OtherApi(call) && r_.OtherScalars(call);
  if (auto found = argued ? std::nullopt : PutInAnotherOrder(call, v)) return *found;
  if (auto found = argued ? std::nullopt : OrderedDifferently(call, v)) return *found;
  if (auto found = Reshaped(call, v)) return *found;
  if (auto found = ComputedNumber(call, v)) return *found;
  const Value& value = t.values[v];
  const auto takes = t.Takes(call);
  const bool given =
      std::any_of(takes.begin(), takes.end(), [&](const Port& p) { return p.value == v; });
  if (value.maker != call && given) return Named(call, v, Cause::kNoCallMadeIt, t.IsWeight(v));
  Candidate named =
      Named(call, v, argued || r_.OtherApi(call) ? Cause::kMadeDifferently : Cause::kAnotherResult,
            value.maker == call);
  named.another_order = named.cause == Cause::kAnotherResult && value.maker == call &&
                        HasAnotherOrder(call, r_.t.made[value.port]);
  return named;
}

// A call that only the target makes left x as it was, where its partner made something of it.
std::optional<Candidate> Exposure::LeftAsItWas(CallId call, ValueId v, std::vector<CallId> seen) {
  const Graph& t = r_.t;
  for (const Port& port : t.Takes(call)) {
    for (const CallId m : t.MakersOf(port.value)) {
      if (m >= call || r_.pair[m] == kNoId || t.calls[m].kind != CallKind::kOperation ||
          std::ranges::find(seen, m) != seen.end())
        continue;
      for (const Port& made : t.Makes(m)) {
        if (made.value != port.value) continue;
        const ValueId w = r_.AtPartner(made);
        if (w == kNoId || r_.Fits(port.value, w) || r_.Has(w)) continue;
        seen.push_back(call);
        return Origin(m, v, std::move(seen));
      }
    }
  }
  return std::nullopt;
}

// One run passes a constant that no recorded call made where the other passes what only it
// computes: a window of ones, say.
std::optional<Candidate> Exposure::ConstantInstead(CallId call, ValueId x, ValueId w,
                                                   ValueId v) const {
  const Value &mine = r_.t.values[x], &other = r_.g.values[w];
  // A backward pass begins with a constant.
  if (!r_.t.calls[call].IsForward() || !mine.plain || mine.maker != kNoId || other.plain ||
      other.maker == kNoId || r_.partner[other.maker] != kNoId ||
      mine.shape.view() != other.shape.view())
    return std::nullopt;
  // A weight or memory that is not written as in the golden: who should write it is to blame.
  const OperationFacts* facts = r_.g.calls[other.maker].facts;
  if (r_.t.IsWeight(x) || facts == nullptr || facts->in_place) return std::nullopt;
  Candidate found = Named(call, v, Cause::kAnotherInput, true);
  found.another = x;
  return found;
}

// Of the calls that take x in place of something else the one that is named.
CallId Exposure::WhereTaken(CallId call, ValueId x) const {
  const Graph& t = r_.t;
  CallId named = call;
  for (CallId around = t.calls[call].parent;
       modules_only_ && t.values[x].maker == kNoId && around != kNoId;
       around = t.calls[around].parent) {
    const auto takes = t.Takes(around);
    if (std::none_of(takes.begin(), takes.end(), [&](const Port& p) { return p.value == x; }))
      break;
    named = around;
  }
  // What the forward call takes decides what its gradients meet.
  const CallId forward = t.calls[call].forward;
  return t.calls[call].IsBackward() && forward != kNoId && TakesAnother(forward) ? forward : named;
}

// Whether a call makes complex numbers of real ones, or the other way: they are the same numbers.
bool Exposure::OnlyPairsUp(CallId call) const {
  const Graph& t = r_.t;
  const auto is_complex = [&t](const Port& port) { return t.values[port.value].IsComplex(); };
  const auto takes = t.Takes(call), makes = t.Makes(call);
  return t.calls[call].facts->kind == OperationClass::kKeeps &&
         std::any_of(takes.begin(), takes.end(), is_complex) !=
             std::any_of(makes.begin(), makes.end(), is_complex);
}

// A call takes a right value in place of one that no call like it takes: that of another
// micro-batch, say. Micro-batches in another order take each other's values, and none is lost.
bool Exposure::TakesStale(CallId call) const {
  const Graph& t = r_.t;
  if (r_.pair[call] == kNoId) return false;
  const auto is_lost = [&](ValueId w) {
    const ValueId known = t.WithContent(r_.g.values[w].content);
    if (known == kNoId) return !r_.Has(w);
    const auto uses = t.TakersOf(known);
    return std::none_of(uses.begin(), uses.end(), [&](const Taker& use) {
      return t.calls[use.call].path == t.calls[call].path && t.ApiOf(use.call) == t.ApiOf(call);
    });
  };
  const auto takes = t.Takes(call);
  return std::any_of(takes.begin(), takes.end(), [&](const Port& port) {
    const ValueId w = r_.AtPartner(port);
    return w != kNoId && r_.IsRight(port.value) && !r_.IsPart(port.value) &&
           !r_.g.values[w].plain &&
           t.values[port.value].shape.view() == r_.g.values[w].shape.view() &&
           !r_.Fits(port.value, w) && is_lost(w);
  });
}

// Rows that stand in another order went in, and the same elements came out: which order they have
// then is not known.
bool Exposure::HasAnotherOrder(CallId call, const Port& made) const {
  const auto takes = r_.t.Takes(call);
  const ValueId v = made.value, w = r_.AtPartner(made);
  if (w == kNoId) return false;
  const Value& value = r_.t.values[v];
  const double apart = Distance(value.moments, r_.g.values[w].moments, r_.Terms(v));
  return apart <= std::max(r_.of(v).bound, kOwnRoundings * value.roundoff()) &&
         std::any_of(takes.begin(), takes.end(), [this](const Port& port) {
           return r_.of(port.value).strength == Strength::kSame;
         });
}

// The call that made x for `call`, if it stands between. Another pass may have made the same
// before: the last call that did is meant.
CallId Exposure::MakerBetween(ValueId x, ValueId w, CallId call) const {
  const Graph& t = r_.t;
  CallId between = kNoId;
  for (const CallId last : t.MakersOf(x)) {
    if (last >= call) break;
    const OperationFacts* facts = t.calls[last].facts;  // none: of an optimizer
    const bool moves = facts == nullptr || facts->Moves();
    if ((last == t.values[x].maker || !moves) && StandsBetween(last, w)) between = last;
  }
  return between;
}

// A call that only the target makes takes what a partner takes, which is given what it makes
// instead.
bool Exposure::StandsBetween(CallId call, ValueId w) const {
  if (r_.pair[call] != kNoId || r_.t.calls[call].IsModule()) return false;
  const auto takes = r_.t.Takes(call);
  return std::any_of(takes.begin(), takes.end(), [&](const Port& port) {
    return !r_.t.values[port.value].plain && r_.Fits(port.value, w);
  });
}

// A call that only the target makes puts rows into another order, and this call does not tell: it
// draws random numbers, or its result was not related.
std::optional<Candidate> Exposure::PutInAnotherOrder(CallId call, ValueId v) const {
  for (const Port& port : r_.t.Takes(call)) {
    const Relation& r = r_.of(port.value);
    const CallId maker = r_.t.values[port.value].maker;
    if (r.strength == Strength::kSame && r.doubtful && maker != kNoId && maker < call &&
        r_.pair[maker] == kNoId && !r_.t.calls[maker].IsModule())
      return Named(maker, v, Cause::kOnlyHere, true);
  }
  return std::nullopt;
}

// The call takes rows in another order than those beside them, and the last call before it that was
// given another argument made such an order of right values: which end to sort from.
std::optional<Candidate> Exposure::OrderedDifferently(CallId call, ValueId v) {
  const Graph& t = r_.t;
  const auto in_another_order = [&](const Port& port) {
    const Value& value = t.values[port.value];
    if (!value.plain) return r_.of(port.value).strength == Strength::kSame;
    // A permutation looks like any other one, but for its bits.
    const ValueId w = r_.AtPartner(port);
    return !value.IsFloat() && value.moments.high > 0 && w != kNoId &&
           r_.g.values[w].content != value.content;
  };
  const auto in_order = [&](const Port& port) {
    return !in_another_order(port) &&
           (t.values[port.value].plain || r_.of(port.value).strength >= Strength::kNear);
  };
  if (std::ranges::none_of(t.Takes(call), in_another_order)) return std::nullopt;
  if (!orders_) {
    orders_.emplace();
    for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
      if (t.calls[id].kind == CallKind::kOperation && r_.pair[id] != kNoId &&
          std::ranges::any_of(t.Makes(id), in_another_order) &&
          std::ranges::all_of(t.Takes(id), in_order))
        orders_->push_back(id);
    }
  }
  const auto after = std::ranges::lower_bound(*orders_, call);
  if (after == orders_->begin()) return std::nullopt;
  const CallId id = *std::prev(after);
  if (r_.OtherApi(id) || !r_.OtherScalars(id)) return std::nullopt;
  return Named(id, v, Cause::kMadeDifferently, true);
}

// Shape is part of a value: a call that only one run makes leaves the elements as they are, and
// gives them another shape than the other run passes here.
std::optional<Candidate> Exposure::Reshaped(CallId call, ValueId v) const {
  // Another framework gives its operations the same elements in other shapes.
  if (r_.of_two_frameworks) return std::nullopt;
  const auto lone_maker = [](const Graph& run, const std::vector<CallId>& partners,
                             const Port& port, CallId before) {
    CallId found = kNoId;
    for (const CallId m : run.MakersOf(port.value)) {
      if (m >= before || partners[m] != kNoId || run.calls[m].IsModule()) continue;
      for (const Port& made : run.Makes(m)) {
        if (made.value == port.value &&
            run.dump.leaves[made.leaf].shape.view() == run.dump.leaves[port.leaf].shape.view())
          found = m;
      }
    }
    return found;
  };
  const Value& wrong = r_.t.values[v];
  const ValueId made = wrong.maker == call ? r_.AtPartner(r_.t.made[wrong.port]) : kNoId;
  for (const Port& port : r_.t.Takes(call)) {
    for (const Port& there : r_.g.Takes(r_.pair[call])) {
      const Shape mine = r_.t.dump.leaves[port.leaf].shape,
                  other = r_.g.dump.leaves[there.leaf].shape;
      if (r_.AtTarget(there.leaf) != port.value || !r_.Fits(port.value, there.value) ||
          mine.view() == other.view() || mine.elements() != other.elements())
        continue;
      if (const CallId m = lone_maker(r_.t, r_.pair, port, call); m != kNoId)
        return Named(m, v, Cause::kOnlyHere, true);
      if (const CallId m = lone_maker(r_.g, r_.partner, there, r_.pair[call]); m != kNoId)
        return Candidate{.golden = m,
                         .value = made == kNoId ? there.value : made,
                         .cause = Cause::kMissing,
                         .order = call - 0.5,
                         .sure = true};
    }
  }
  return std::nullopt;
}

// One run passes a number, or nothing, where the other passes a tensor that only it computes.
std::optional<Candidate> Exposure::ComputedNumber(CallId call, ValueId v) const {
  const auto is_number = [](const Graph& run, int32_t leaf) {
    return leaf >= 0 && run.dump.leaves[leaf].kind == LeafKind::kScalar;
  };
  const auto another = [&](ValueId passed) {
    Candidate found = Named(call, v, Cause::kAnotherInput, true);
    found.another = passed;
    return found;
  };
  for (const Port& port : r_.g.Takes(r_.pair[call])) {
    const CallId maker = r_.g.values[port.value].maker;
    if (r_.AtTarget(port.leaf) != kNoId || maker == kNoId || r_.partner[maker] != kNoId) continue;
    if (is_number(r_.t, r_.TargetLeaf(port.leaf))) return another(kNoId);
    return Missing({port.value}, call, kNoId - 1);
  }
  // Of several the first that is no neutral element: factors of 1 and addends of 0 change nothing.
  std::optional<Candidate> neutral;
  for (const Port& port : r_.t.Takes(call)) {
    const Value& value = r_.t.values[port.value];
    if (r_.AtPartner(port) != kNoId || value.maker == kNoId || r_.pair[value.maker] != kNoId)
      continue;
    const Candidate found = is_number(r_.g, r_.PartnerLeaf(port.leaf))
                                ? another(port.value)
                                : Named(value.maker, port.value, Cause::kOnlyHere);
    const Moments& of = value.moments;
    if (!of.known || of.high != of.low || (of.high != 0 && of.high != 1)) return found;
    if (!neutral) neutral = found;
  }
  return neutral;
}

bool Exposure::Errs(CallId call) const {
  return std::ranges::any_of(r_.t.Makes(call),
                             [this](const Port& port) { return !r_.IsRight(port.value); });
}

// Two modules that the runs call one after the other, in another order: each call of one is paired
// with a call of the other, and takes what is its own.
bool Exposure::IsOfAnotherModule(const Candidate& found) const {
  return (found.cause == Cause::kAnotherInput || found.cause == Cause::kAnotherWeight) &&
         found.call != kNoId && found.golden != kNoId &&
         r_.t.calls[found.call].path != r_.g.calls[found.golden].path;
}

// The call takes x where its partner takes w: the call before it that should have made w.
std::optional<Candidate> Exposure::WhoShouldMake(ValueId x, ValueId w, CallId call, ValueId v,
                                                 const std::vector<CallId>& seen) {
  const Graph &t = r_.t, &g = r_.g;
  const CallId maker = g.values[w].maker;
  const CallId mine = maker == kNoId ? kNoId : r_.partner[maker];
  const auto errs = [&](CallId m, ValueId own) {
    const bool was_seen = std::find(seen.begin(), seen.end(), m) != seen.end();
    return m != kNoId && m < call && !was_seen && own != kNoId && !r_.Fits(own, w) &&
           !MayBePositions(own) && !FillsNewMemory(t, m);
  };
  if (mine != kNoId) {
    const ValueId own = r_.AtTarget(g.made[g.values[w].port].leaf);
    if (errs(mine, own)) {
      Candidate found = Origin(mine, v, seen);
      found.other_pass |= IsOfAnotherModule(found);
      found.other_pass &= r_.Has(w) && r_.IsRight(own);
      return found;
    }
    // The golden makes the same numbers again: the last time before this call, they go there.
    const CallId end = call < static_cast<CallId>(t.calls.size()) ? r_.pair[call] : kNoId;
    const auto makers = g.MakersOf(w);
    for (size_t i = makers.size(); i-- > 0;) {
      if (makers[i] >= end || makers[i] == maker || g.calls[makers[i]].IsModule()) continue;
      for (const Port& made : g.Makes(makers[i])) {
        if (made.value == w && errs(r_.partner[makers[i]], r_.AtTarget(made.leaf)))
          return Origin(r_.partner[makers[i]], v, seen);
      }
      break;
    }
    return std::nullopt;
  }
  if (maker != kNoId) {
    if (r_.Has(w)) return std::nullopt;
    return Missing({w}, call, r_.of(x).golden);
  }
  if (const auto parts = g.PartsOf(w); !parts.empty()) {
    std::vector<ValueId> lost;
    for (const ValueId p : parts) {
      if (!r_.Has(p)) lost.push_back(p);
    }
    if (!lost.empty()) return Missing(lost, call, kNoId - 1);
    // The target has all parts. One of them may stand at the place of another one.
    for (const ValueId p : t.PartsOf(x)) {
      const CallId m = t.values[p].maker;
      if (m == kNoId || m >= call || std::find(seen.begin(), seen.end(), m) != seen.end()) continue;
      const ValueId there = r_.AtPartner(t.made[t.values[p].port]);
      if (there != kNoId && !t.values[p].plain && !r_.Fits(p, there)) return Origin(m, v, seen);
    }
    if (r_.of(x).strength < Strength::kNear) return std::nullopt;
    // Or it adds up only some: the gradient of another use is lost.
    for (const ValueId p : parts) {
      if (p == r_.of(x).golden || g.values[p].maker == kNoId) continue;
      for (const CallId m : g.MakersOf(p)) {  // that only passes the gradient on
        const CallId only = g.calls[m].forward;
        if (r_.partner[m] == kNoId && only != kNoId && r_.partner[only] == kNoId)
          return Candidate{
              .golden = only, .value = w, .cause = Cause::kMissing, .order = call - 0.5};
      }
      const CallId forward = g.calls[g.values[p].maker].forward;
      const CallId f = forward == kNoId ? kNoId : r_.partner[forward];
      if (f != kNoId) return Named(f, v, Cause::kGradientNotAdded);
      break;
    }
    return std::nullopt;
  }
  if (!t.IsWeight(x) && call < static_cast<CallId>(t.calls.size()))
    return Unrecorded(x, w, call, v, seen);
  return std::nullopt;
}

// A chain of calls that only the golden has leads to what the partner of a call takes. Named is the
// call that takes what `call` takes in its place; or else the one that joins the chain to the rest.
std::optional<Candidate> Exposure::Missing(std::vector<ValueId> todo, CallId call,
                                           ValueId taken) const {
  const Graph& g = r_.g;
  if (todo.empty()) return std::nullopt;
  const ValueId end = todo[0];
  std::vector<CallId> chain, around;
  while (!todo.empty()) {
    const ValueId w = todo.back();
    todo.pop_back();
    const CallId m = g.values[w].maker;
    if (m == kNoId || r_.Has(w) || r_.partner[m] != kNoId ||
        std::find(chain.begin(), chain.end(), m) != chain.end())
      continue;
    chain.push_back(m);
    for (const Port& port : g.Takes(m)) {
      todo.push_back(port.value);
      if (port.value == taken) around.push_back(m);
    }
  }
  if (chain.empty()) return std::nullopt;
  const bool backward =
      call < static_cast<CallId>(r_.t.calls.size()) && r_.t.calls[call].IsBackward();
  const CallId named = !around.empty() ? *std::min_element(around.begin(), around.end())
                       : backward      ? *std::min_element(chain.begin(), chain.end())
                                       : *std::max_element(chain.begin(), chain.end());
  return Candidate{.golden = named, .value = end, .cause = Cause::kMissing, .order = call - 0.5};
}

ValueId Exposure::ResultOf(CallId golden) const {
  const auto makes = r_.g.Makes(golden);
  for (const Port& port : makes) {
    if (!r_.Has(port.value)) return port.value;
  }
  return makes.empty() ? kNoId : makes[0].value;
}

// A golden call makes of values that the target has what the target has not. One that takes only
// constants gives its name to the call that joins its result to the rest.
Candidate Exposure::MissingFrom(ValueId w) const {
  const Graph& g = r_.g;
  CallId m = g.values[w].maker;
  std::vector<CallId> seen;
  while (std::find(seen.begin(), seen.end(), m) == seen.end()) {
    const auto takes = g.Takes(m);
    if (std::any_of(takes.begin(), takes.end(), [this](const Port& p) { return r_.Has(p.value); }))
      break;
    seen.push_back(m);
    CallId next = kNoId;
    for (const Port& made : g.Makes(m)) {
      for (const Taker& use : g.TakersOf(made.value)) {
        const bool lone =
            !g.calls[use.call].IsModule() && r_.partner[use.call] == kNoId && use.call > m;
        if (lone && (next == kNoId || use.call < next)) next = use.call;
      }
    }
    if (next != kNoId) m = next;
  }
  return {.golden = m, .value = w, .cause = Cause::kNowhere, .order = OrderOf(m)};
}

// The golden updates a parameter, the target does not: no gradient reaches it, or nobody steps.
Candidate Exposure::MissingStep(CallId golden) const {
  const Graph& g = r_.g;
  CallId first = golden;
  std::vector<ValueId> todo, known;
  for (const Port& port : g.Takes(golden)) {
    if (!LeafPlace(g.dump.leaves[port.leaf], g.dump.records[g.calls[golden].record])
             .starts_with("gradients."))
      continue;
    todo.push_back(port.value);
    const auto parts = g.PartsOf(port.value);
    todo.insert(todo.end(), parts.begin(), parts.end());
  }
  while (!todo.empty()) {
    const ValueId w = todo.back();
    todo.pop_back();
    const CallId m = g.values[w].maker;
    if (m == kNoId || r_.Has(w) || r_.partner[m] != kNoId ||
        std::find(known.begin(), known.end(), w) != known.end())
      continue;
    known.push_back(w);
    first = std::min(first, m);
    for (const Port& port : g.Takes(m)) todo.push_back(port.value);
  }
  return {.golden = first,
          .value = ResultOf(first),
          .cause = Cause::kMissing,
          .order = OrderOf(first),
          .sure = true};
}

// The place of a golden call in the order of the target.
double Exposure::OrderOf(CallId golden) const {
  for (CallId id = golden; id < static_cast<CallId>(r_.g.calls.size()); ++id) {
    if (r_.partner[id] != kNoId) return r_.partner[id] - 0.5;
  }
  return static_cast<double>(r_.t.calls.size());
}

// Code without records makes x in the target and w in the golden: the first call before it whose
// result no recorded call takes, and which only the golden has, or which made another value of the
// golden.
std::optional<Candidate> Exposure::Unrecorded(ValueId x, ValueId w, CallId call, ValueId v,
                                              const std::vector<CallId>& seen) {
  const Graph &t = r_.t, &g = r_.g;
  const CallId end = r_.pair[call];
  for (CallId m = 0; m < end; ++m) {
    const Call& other = g.calls[m];
    // Gradients of parameters are listed before the calls that made them, and lead nowhere.
    if (other.IsBackward() != g.calls[end].IsBackward() || other.IsModule() ||
        other.kind == CallKind::kGradients)
      continue;
    const CallId mine = r_.partner[m];
    for (const Port& port : g.Makes(m)) {
      const ValueId y = port.value;
      if (g.values[y].plain || !g.IsLoose(y) || LeadOf(g.values[w], g.values[y]) == Lead::kNone)
        continue;
      if (mine == kNoId && !r_.Has(y)) return Missing({y}, call, kNoId - 1);
      if (mine == kNoId || mine >= call || std::find(seen.begin(), seen.end(), mine) != seen.end())
        continue;
      const ValueId own = r_.AtTarget(port.leaf);
      if (own != kNoId && !r_.Fits(own, y) && LeadOf(t.values[x], t.values[own]) != Lead::kNone)
        return Origin(mine, v, seen);
    }
  }
  return std::nullopt;
}

Candidate Exposure::Named(CallId call, ValueId v, Cause cause, bool sure) const {
  const Graph& t = r_.t;
  if (modules_only_ && (cause == Cause::kNoCallMadeIt || cause == Cause::kAnotherInput)) {
    const auto takes = t.Takes(call);
    const bool parameter = std::any_of(takes.begin(), takes.end(), [&](const Port& port) {
      return port.value == v && t.dump.leaves[port.leaf].slot == Slot::kParameter;
    });
    if (t.calls[call].parent != kNoId && !parameter) call = t.calls[call].parent;
  }
  return {.call = call,
          .golden = r_.pair[call],
          .value = v,
          .cause = cause,
          .order = static_cast<double>(call),
          .sure = sure};
}

}  // namespace msprobe::compare::relations
