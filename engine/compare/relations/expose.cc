#include "engine/compare/relations/expose.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ranges>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"

namespace msprobe::compare::relations {
namespace {

bool IsView(std::string_view api) {
  const std::string_view base = BaseApi(api);
  return base == "narrow" || base == "split" || base == "view" || base == "chunk";
}

// Whether rows of two values may belong together: those of one batch.
bool MayMeet(const Value& a, const Value& b) {
  const auto mine = a.shape.extents(), other = b.shape.extents();
  return std::any_of(mine.begin(), mine.end(), [&](int64_t n) {
    return n > 1 && std::find(other.begin(), other.end(), n) != other.end();
  });
}

void Append(std::vector<ValueId>* out, const std::vector<ValueId>& more) {
  out->insert(out->end(), more.begin(), more.end());
}

}  // namespace

int Candidate::Evidence() const {
  if (another_order) return 0;
  if (sure) return 3;
  switch (cause) {
    case Cause::kOnlyHere:
    case Cause::kNoCallMadeIt:
      return 0;
    case Cause::kNowhere:
      return 1;
    default:
      return 2;
  }
}

Exposure::Exposure(const Relations& relations, std::span<const LeftGradient> left)
    : r_(relations),
      modules_only_(!relations.g.HasOperations()),
      policies_(ComparePolicies(relations.c)),
      exposed_(relations.t.values.size()),
      exposed_golden_(relations.g.values.size()) {
  for (const auto& [loss, backward] : LossesOf(relations.t)) losses_.push_back(loss);
  FindLeft(left);
  FindSinks();
  Expose();
  if (!bad_sinks_.empty() || !misplaced_.empty() || !missing_steps_.empty()) {
    AddLosses();
    Expose();
  }
  NameFrontier();
  const bool same_policy = SamePolicy();
  const bool alike = r_.same_environment() && same_policy;
  if (!same_policy) DropGrowth();
  // Every bit of another framework is another one, and its operations have other arguments.
  if (r_.of_two_frameworks) return;
  if (!candidates.empty()) {
    PreferBirth(alike);
    return;
  }
  // Another parallel layout passes other sizes, offsets and groups.
  if (!r_.t.dump.ranks.empty() || !r_.g.dump.ranks.empty()) return;
  candidates = FirstBits(alike);
  without_effect = !candidates.empty();
  if (!candidates.empty() || !same_policy || !LossesTellMore()) return;
  AddLosses();
  Expose();
  NameFrontier();
}

void Exposure::NameFrontier() {
  loose_.reset();  // millions; whoever follows more values finds them again
  for (Candidate& each : Rank(Frontier())) {
    const Candidate named = Outermost(WhereCut(each));
    const bool known = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
      return (c.call == named.call && c.golden == named.golden) ||
             (c.pass >= 0 && c.pass == named.pass);
    });
    if (!known) candidates.push_back(named);
  }
  PreferInside();
  PreferAfterRows();
}

// Under another precision policy all values are off by roundings of the coarser dtype, and nobody
// measured how far these may grow: what hardly leaves its bound is their growth.
void Exposure::DropGrowth() {
  const auto exact = [this](const Port& port) {
    return r_.of(port.value).strength == Strength::kEqual;
  };
  std::erase_if(candidates, [&](const Candidate& c) {
    if (c.cause != Cause::kAnotherResult || c.call == kNoId) return false;
    const Relation& r = r_.of(c.value);
    const auto takes = r_.t.Takes(c.call);
    return r.error <= kSurely * r.bound && !std::all_of(takes.begin(), takes.end(), exact);
  });
  if (candidates.empty()) exposed_.Clear();
}

// From the sinks backward, as far as they were not followed yet.
void Exposure::Expose() {
  Spread(
      bad_sinks_, [this](ValueId v) { return CausesOf(v); }, &exposed_);
  Spread(
      bad_golden_, [this](ValueId w) { return GoldenCausesOf(w); }, &exposed_golden_);
}

template <typename Next>
void Exposure::Spread(const std::vector<ValueId>& from, Next next, Causes* out) {
  std::vector<ValueId> todo = from;
  while (!todo.empty()) {
    const ValueId v = todo.back();
    todo.pop_back();
    if (out->Has(v)) continue;
    const std::vector<ValueId> causes = next(v);
    std::ranges::copy_if(causes, std::back_inserter(todo),
                         [out](ValueId w) { return !out->Has(w); });
    out->Put(v, causes);
  }
}

// The wrong values that an exposed value of the target was made of.
std::vector<ValueId> Exposure::CausesOf(ValueId v) {
  const Graph& t = r_.t;
  const Value& value = t.values[v];
  std::vector<ValueId> inputs = t.InputsOf(v, false).Copy();
  const auto right = [this](ValueId w) { return r_.IsRight(w); };
  const auto all_right = [&] { return std::all_of(inputs.begin(), inputs.end(), right); };
  if (left_.count(v) > 0 && !t.PartsOf(v).empty() && all_right()) return {};
  const bool listed = value.maker != kNoId && t.calls[value.maker].kind == CallKind::kGradients;
  const bool unseen = value.maker != kNoId &&
                      (t.TakesNoGradient(value.maker) || (t.IsOfSecondPass(v) && all_right()));
  if ((unseen || (listed && inputs.empty())) && !modules_only_) {
    inputs = Around(v);
    if (all_right()) Append(&inputs, losses_);  // the pass that made it began with one
  } else if (value.maker == kNoId && t.PartsOf(v).empty()) {
    Append(&inputs, Around(v));
    if (all_right()) {  // a loss that nobody recorded
      for (const Taker& use : t.TakersOf(v)) {
        if (!t.calls[use.call].IsBackward()) continue;
        if (const ValueId u = t.ForwardOf(use.call, t.taken[use.port]); u != kNoId)
          inputs.push_back(u);
      }
    }
  } else if (value.maker == kNoId) {
    if (all_right()) Append(&inputs, Around(v));
  } else if (const Call& maker = t.calls[value.maker];
             maker.kind == CallKind::kUpdate && !maker.facts->alone && all_right()) {
    Append(&inputs, GradientsOfAll(maker.record));  // it may divide by the norm of all
  } else if (t.calls[value.maker].IsBackward() && t.calls[value.maker].forward != kNoId &&
             all_right()) {
    inputs = t.InputsOf(v, /*saved=*/true).Copy();
  }
  std::vector<ValueId> wrong;
  // What a call wrote into new memory is right if all that it was given is: who reads the rest
  // errs.
  const auto only_new = [&](ValueId w) {
    const CallId maker = t.values[w].maker;
    if (maker == kNoId || !FillsNewMemory(t, maker)) return false;
    const auto takes = t.Takes(maker);
    return std::all_of(takes.begin() + 1, takes.end(),
                       [&](const Port& port) { return right(port.value); });
  };
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(wrong),
               [&](ValueId w) { return !right(w) && !only_new(w) && !MayBePositions(w); });
  if (IsScaledOnly(v, wrong)) {
    wrong.clear();
    const Inputs saved = t.InputsOf(v, /*saved=*/true);
    std::copy_if(saved.begin(), saved.end(), std::back_inserter(wrong), [&](ValueId w) {
      return !right(w) && std::find(inputs.begin(), inputs.end(), w) == inputs.end();
    });
    return wrong;
  }
  if (!wrong.empty() || !r_.Alike(value.maker)) return wrong;
  // Its result is wrong, so an input is, which may be changed inside of a module.
  const bool module = t.calls[value.maker].IsModule();
  const bool another_order = HasAnotherOrder(value.maker, t.made[value.port]);
  std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(wrong), [&](ValueId w) {
    const Relation& r = r_.of(w);
    if (w == v || module) return w != v && r.like;
    if (r.strength == Strength::kSame && r.proven)
      return r_.of(v).strength == Strength::kSame || another_order || IsShuffled(w, inputs) ||
             IsMiswired(w);
    return r.doubtful;
  });
  return wrong;
}

// Whether integers that a call computes may be the positions of rows: of rows in another order they
// are other ones. Who takes them for the same rows makes what its partner makes.
bool Exposure::MayBePositions(ValueId v) const {
  const CallId maker = r_.t.values[v].maker;
  const Value& value = r_.t.values[v];
  if (maker == kNoId || value.IsFloat() || value.dtype.dtype() == DType::kBool ||
      r_.t.calls[maker].facts->Moves())
    return false;
  const auto takes = r_.t.Takes(maker);
  return std::ranges::all_of(takes, [this](const Port& p) { return r_.IsRight(p.value); }) &&
         std::ranges::any_of(
             takes, [this](const Port& p) { return r_.of(p.value).strength == Strength::kSame; });
}

// The wrong gradients that the entry of an optimizer takes.
const std::vector<ValueId>& Exposure::GradientsOfAll(int32_t record) {
  const auto [found, is_new] = gradients_of_.try_emplace(record);
  if (!is_new) return found->second;
  for (CallId id = 0; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
    if (r_.t.calls[id].record != record) continue;
    for (const Port& port : r_.t.Takes(id)) {
      const std::string_view place =
          LeafPlace(r_.t.dump.leaves[port.leaf], r_.t.dump.records[record]);
      if (place.starts_with("gradients.") && !r_.IsRight(port.value))
        found->second.push_back(port.value);
    }
  }
  return found->second;
}

// Whether a backward call was given the gradients of its partner, times one number, and made
// something else than that number times its partner's result: what it makes is linear in them, so
// the cause is in what its forward call left.
bool Exposure::IsScaledOnly(ValueId v, std::span<const ValueId> given) const {
  const CallId maker = r_.t.values[v].maker;
  if (given.empty() || maker == kNoId || r_.t.calls[maker].kind != CallKind::kBackward ||
      r_.t.calls[maker].forward == kNoId || r_.of(v).strength != Strength::kNone ||
      r_.of(v).golden == kNoId || !(r_.of(v).error < 1e9) ||
      r_.t.values[v].moments.n < kFewestScaled)
    return false;
  for (const Port& port : r_.t.Takes(r_.t.calls[maker].forward)) {
    const ValueId there = r_.AtPartner(port);
    if (there == kNoId || r_.g.values[there].shape.view() != r_.t.values[port.value].shape.view())
      return false;
  }
  const double factor = r_.of(given[0]).factor;
  const auto same = [&](ValueId w) {
    return std::abs(r_.of(w).factor - factor) <= 1e-3 * std::abs(factor);
  };
  return factor != 0 && std::all_of(given.begin(), given.end(), same) && !same(v);
}

// Whether v has the golden's elements in another order, and what is taken beside it has not. Of the
// order of a part nothing is known.
bool Exposure::IsShuffled(ValueId v, std::span<const ValueId> beside) const {
  if (r_.of(v).strength != Strength::kSame) return false;
  return std::any_of(beside.begin(), beside.end(), [&](ValueId w) {
    return r_.of(w).strength >= Strength::kNear && r_.of(w).proof != Proof::kPartOfBatch &&
           !r_.t.values[w].plain && !r_.t.IsWeight(w) && MayMeet(r_.t.values[v], r_.t.values[w]);
  });
}

// Whether the other order of v began at a call that takes something else than its partner: parts
// that were joined the other way round, which weights tell apart.
bool Exposure::IsMiswired(ValueId v) const {
  const Graph& t = r_.t;
  for (size_t steps = 0; steps < kMostCallsBack; ++steps) {
    const CallId maker = t.values[v].maker;
    if (maker == kNoId) return false;
    const auto takes = t.Takes(maker);
    const auto from = std::find_if(takes.begin(), takes.end(), [&](const Port& port) {
      return r_.of(port.value).strength == Strength::kSame && t.values[port.value].maker < maker;
    });
    if (from == takes.end()) return t.calls[maker].IsForward() && TakesAnother(maker);
    v = from->value;
  }
  return false;
}

std::vector<ValueId> Exposure::GoldenCausesOf(ValueId w) const {
  const Graph& g = r_.g;
  const Value& value = g.values[w];
  std::vector<ValueId> inputs = g.InputsOf(w, false).Copy();
  const auto found = [this](ValueId x) { return Found(x); };
  const bool all = std::all_of(inputs.begin(), inputs.end(), found);
  if (value.maker == kNoId && all) {
    for (const Taker& use : g.TakersOf(w)) {
      if (!g.calls[use.call].IsBackward()) continue;
      if (const ValueId u = g.ForwardOf(use.call, g.taken[use.port]); u != kNoId)
        inputs.push_back(u);
    }
  } else if (value.maker != kNoId && g.calls[value.maker].IsBackward() &&
             g.calls[value.maker].forward != kNoId && all) {
    inputs = g.InputsOf(w, /*saved=*/true).Copy();
  }
  std::erase_if(inputs, found);
  return inputs;
}

// Whether v is what an optimizer keeps from step to step.
bool Exposure::IsState(ValueId v) const {
  return std::ranges::any_of(r_.t.TakersOf(v), [&](const Taker& use) {
    const Call& call = r_.t.calls[use.call];
    const Leaf& leaf = r_.t.dump.leaves[r_.t.taken[use.port].leaf];
    return call.kind == CallKind::kUpdate &&
           LeafPlace(leaf, r_.t.dump.records[call.record]).starts_with("state.");
  });
}

// A gradient for an optimizer; or a view of memory that no call has written, which may be written
// through the view.
bool Exposure::Ends(ValueId v) const {
  const Graph& t = r_.t;
  const Value* value = &t.values[v];
  const CallKind kind = t.calls[value->maker].kind;
  if (kind == CallKind::kGradients || kind == CallKind::kUpdate) return true;
  while (value->IsFloat() && value->maker != kNoId && IsView(t.ApiOf(value->maker))) {
    if (t.calls[value->maker].kind != CallKind::kOperation || t.Takes(value->maker).empty())
      return false;
    const Value* next = &t.values[t.Takes(value->maker)[0].value];
    if (next->maker >= value->maker) return false;  // equal contents may close a circle
    value = next;
  }
  return value->maker == kNoId;
}

// A call that only the golden makes inside of a function of the user's, which makes nothing else:
// the function is missing.
Candidate Exposure::Outermost(Candidate candidate) const {
  if (candidate.cause == Cause::kAnotherInput && !modules_only_)
    return candidate.other_pass ? candidate : FirstThatTakes(candidate);
  candidate = WhereMade(candidate);
  if (candidate.call != kNoId || candidate.golden == kNoId) return candidate;
  for (const Port& port : r_.g.Makes(candidate.golden)) {
    for (const CallId maker : r_.g.MakersOf(port.value)) {
      if (r_.g.calls[maker].facts->opaque && r_.partner[maker] == kNoId) candidate.golden = maker;
    }
  }
  return candidate;
}

// The gradient of a call that only one run makes is the work of that call, unless what it made
// forward is in the other run, too: a loss times a number.
Candidate Exposure::WhereMade(Candidate candidate) const {
  const bool of_target = candidate.call != kNoId;
  const CallId named = of_target ? candidate.call : candidate.golden;
  if (named == kNoId || candidate.cause == Cause::kLeftGradient) return candidate;
  const Graph& run = of_target ? r_.t : r_.g;
  const std::vector<CallId>& partners = of_target ? r_.pair : r_.partner;
  const CallId forward = run.calls[named].forward;
  if (partners[named] != kNoId || forward == kNoId || partners[forward] != kNoId) return candidate;
  for (const Port& port : run.Makes(forward)) {
    if (of_target ? r_.IsRight(port.value) : Found(port.value)) continue;
    (of_target ? candidate.call : candidate.golden) = forward;
    candidate.value = port.value;
    candidate.order = of_target ? forward : OrderOf(forward);
    break;
  }
  return candidate;
}

// What is passed in place of something else at one call may have been passed so before.
Candidate Exposure::FirstThatTakes(Candidate candidate) const {
  for (const Port& port : r_.t.Takes(candidate.call)) {
    const ValueId w = r_.AtPartner(port);
    if (w == kNoId || r_.t.values[port.value].plain || r_.Fits(port.value, w)) continue;
    for (const Taker& use : r_.t.TakersOf(port.value)) {
      const Port& given = r_.t.taken[use.port];
      if (use.call >= candidate.call || r_.pair[use.call] == kNoId ||
          r_.t.calls[use.call].IsModule() || r_.AtPartner(given) != w)
        continue;
      candidate.call = use.call;
      candidate.golden = r_.pair[use.call];
    }
    break;
  }
  return candidate;
}

// The first call that takes v; at level L0 the outermost module, whose inner ones end first.
CallId Exposure::TakerOf(ValueId v) const {
  const auto uses = r_.t.TakersOf(v);
  CallId taker = uses[0].call;
  const auto takes = [&](CallId call) {
    return std::any_of(uses.begin(), uses.end(),
                       [&](const Taker& use) { return use.call == call; });
  };
  while (modules_only_ && r_.t.calls[taker].parent != kNoId && takes(r_.t.calls[taker].parent))
    taker = r_.t.calls[taker].parent;
  return taker;
}

std::vector<Candidate> Exposure::Frontier() {
  const Graph& t = r_.t;
  std::vector<Candidate> found;
  std::vector<ValueId> values(exposed_.values().begin(), exposed_.values().end());
  std::sort(values.begin(), values.end());
  for (const ValueId v : values) {
    const Value& value = t.values[v];
    const std::span<const ValueId> causes = exposed_.Of(v);
    if (r_.of(v).strength == Strength::kNone && r_.of(v).unknown) continue;
    const size_t known = found.size();
    if (auto left = LeftIn(v); left && (causes.empty() || t.PartsOf(v).empty())) {
      found.push_back(*left);
    } else if (causes.empty() && value.maker == kNoId && t.TakersOf(v).empty()) {
      found.push_back({.value = v, .cause = Cause::kAnotherUpdate, .order = -1, .sure = true});
    } else if (causes.empty() && value.maker != kNoId && t.TakesNoGradient(value.maker)) {
      found.push_back(Named(value.maker, v, Cause::kNoCallMadeIt));
    } else if (causes.empty()) {
      found.push_back(Origin(value.maker != kNoId ? value.maker : TakerOf(v), v, {}));
    } else if (value.maker != kNoId && t.calls[value.maker].kind == CallKind::kOperation &&
               TakesAnother(value.maker)) {
      found.push_back(Origin(value.maker, v, {}));
    }
    if (found.size() > known) found.back().shown_by = v;
  }
  for (const auto& [call, v] : misplaced_) {
    const auto left = LeftIn(v);
    found.push_back(left ? *left : Origin(call, v, {}));
  }
  for (const CallId call : missing_steps_) found.push_back(MissingStep(call));
  for (const auto& [x, w] : other_losses_) {
    if (auto c = WhoShouldMake(x, w, static_cast<CallId>(t.calls.size()), x, {}))
      found.push_back(*c);
  }
  // What another framework computes in calls of its own is missing nowhere.
  if (!modules_only_ && (found.empty() || !r_.of_two_frameworks)) {
    std::vector<ValueId> lost;
    for (const ValueId w : exposed_golden_.values()) {
      const CallId maker = r_.g.values[w].maker;
      if (!exposed_golden_.Of(w).empty() || maker == kNoId || r_.partner[maker] != kNoId ||
          r_.IsCompiled(maker))
        continue;
      // What only moves elements is missed by who takes them.
      const bool moves = r_.g.calls[maker].facts->Moves() && r_.g.Takes(maker).size() == 1;
      if (!moves) lost.push_back(w);
    }
    std::sort(lost.begin(), lost.end());
    for (const ValueId w : lost) found.push_back(MissingFrom(w));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.order < b.order; });
  std::set<std::pair<CallId, CallId>> known;
  std::vector<Candidate> unique;
  for (const Candidate& each : found) {
    if (known.emplace(each.call, each.golden).second) unique.push_back(each);
  }
  return unique;
}

// A paired call takes a value of the golden, but not the one that its partner takes.
bool Exposure::TakesAnother(CallId call) const {
  if (r_.pair[call] == kNoId) return false;
  bool any = false, all = true;
  for (const Port& port : r_.t.Takes(call)) {
    const ValueId w = r_.AtPartner(port);
    if (w == kNoId || !r_.IsRight(port.value) || r_.t.values[port.value].plain) continue;
    const bool fits = r_.Fits(port.value, w);
    any |= fits;
    all &= fits;
  }
  if (all) return false;
  const auto mine = r_.t.Makes(call), other = r_.g.Makes(r_.pair[call]);
  return any ||
         std::equal(mine.begin(), mine.end(), other.begin(), other.end(),
                    [this](const Port& a, const Port& b) {
                      return r_.t.values[a.value].shape.view() == r_.g.values[b.value].shape.view();
                    });
}

}  // namespace msprobe::compare::relations
