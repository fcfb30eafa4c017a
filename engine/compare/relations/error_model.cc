// The model of error of relate.h: an error is relative to the terms that were added up to a value,
// and
//
//   error(result) <= gain * error(arguments) + roundings of the call itself.
//
// The error of a related argument is what was measured, and that of an unrelated one is its own
// bound.
#include <algorithm>
#include <cmath>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/model/thresholds.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

// How much a call enlarges an error, by its class; statistics of a related value may show less than
// its error, which is in these numbers, too.
constexpr double kGain = 8, kGainOfMoves = 4, kGainOfCancelling = 32;
// So many times the roundings of another call where many terms are added up.
constexpr double kOwnOfSums = 4;
// And of elements that are the golden's, in any order: of a sum or product of two of them, and of
// what the same kernel makes of them.
constexpr double kOwnOfExact = 4;
// Of the digits of the dtype half must agree, but for two bits, or nothing is proven: 1e-3 in
// float32.
constexpr double kJudged = 4;
// So many elements of a normal distribution are nearer to zero than its error, relative to its
// size.
constexpr double kNearZero = 0.8;
// So many movements the sum of a bias may show where a third of its elements are moved either way,
// by a kernel that rounds most of them to one side: 0.8 if each is by chance.
constexpr double kOfNoise = 4;
// An error that got so many times smaller has gone; so has one of so many roundings of the dtype.
constexpr double kContracts = 64, kHidden = 4;

double GainOf(const OperationFacts& facts) {
  if (facts.Moves()) return kGainOfMoves;
  return facts.Cancels() ? kGainOfCancelling : kGain;
}

double Moved(const Moments& a, const Moments& b) {
  if (!a.known || !b.known) return 0;
  return std::max({std::abs(a.high - b.high), std::abs(a.low - b.low), std::abs(a.mean - b.mean)});
}

}  // namespace

// The roundings of the call that made a value, or of the sum that no call made.
double Relations::OwnOf(ValueId v, double roundoff, double exponent) const {
  const Value& value = t.values[v];
  const Call* call = value.maker == kNoId ? nullptr : &t.calls[value.maker];
  const OperationFacts* facts = call != nullptr ? call->facts : nullptr;
  const bool operation = call != nullptr && call->kind == CallKind::kOperation;
  const bool moves = operation && facts->Moves();
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  double own = (moves ? 1 : kOwnRoundings) * roundoff;
  // A module whose inside is not recorded makes any number of calls.
  const bool of_many = call != nullptr && !t.HasOperations() &&
                       (call->IsModule() || call->kind == CallKind::kGradients);
  if (of_many ||
      (facts != nullptr && (facts->Cancels() || facts->kind == OperationClass::kContraction)))
    own *= kOwnOfSums;
  const bool exact =
      operation && std::ranges::all_of(inputs, [this](ValueId w) { return IsExact(w); });
  if (exact && facts->RoundsOnce())
    own = kOwnOfExact * roundoff;
  else if (exact && !moves && same_environment_ && Alike(value.maker))
    own *= kOwnOfExact / kOwnRoundings;
  if (exponent > 1) own = std::max(own, kGainOfMoves * exponent * roundoff);
  if (call != nullptr && call->IsBackward()) own = std::max(own, OwnOfCancelling(v) * roundoff);
  own *= ScaleOf(v);
  const bool is_sum = !t.PartsOf(v).empty();
  return is_sum ? own * std::sqrt(std::max<double>(static_cast<double>(inputs.size()), 1)) : own;
}

Relations::Bound Relations::BoundOf(ValueId v) const {
  const Value& value = t.values[v];
  const Call* call = value.maker == kNoId ? nullptr : &t.calls[value.maker];
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  const bool moves = call != nullptr && call->kind == CallKind::kOperation && call->facts->Moves();
  const bool equal = std::all_of(inputs.begin(), inputs.end(),
                                 [&](ValueId w) { return of(w).strength == Strength::kEqual; });
  const bool guessed = IsUnseen(v, inputs);
  if (call != nullptr && equal && !guessed &&
      (moves || (same_environment_ && TakesTheSameBits(value.maker))))
    return {.error = 0, .exact = true};
  if (call != nullptr && call->kind == CallKind::kUpdate) {
    const double moved = BoundOfUpdate(v, *call);
    return {.error = moved, .wide = moved};
  }
  double roundoff = value.roundoff();
  for (const ValueId w : inputs) roundoff = std::max(roundoff, t.values[w].roundoff());
  const bool is_sum = !t.PartsOf(v).empty();
  const OperationFacts* facts = call != nullptr ? call->facts : nullptr;
  const double exponent = call != nullptr ? ExponentOf(value.maker) : 1;
  double own = OwnOf(v, roundoff, exponent);
  // An absolute error of what is exponentiated is a relative one of the result.
  const double gain = std::max(facts != nullptr ? GainOf(*facts) : kGain, 2 * exponent);
  const bool adds =
      facts == nullptr || call->kind == CallKind::kGradients || facts->kind == OperationClass::kSum;
  const double terms = Terms(v);
  // The measured error of a part, as sketches show it, is one of several that are likely. A sum
  // that no call makes is made once; one of each layer must not enlarge it again.
  const double spread = call == nullptr ? kGain : call->kind == CallKind::kGradients ? 4 : 2;
  double grown = 0, added = 0;
  const auto count = [&](ValueId w, bool addend) {
    double error = ErrorOf(w);
    const double size = Terms(w), rms = Rms(w);
    const bool near = of(w).strength >= Strength::kNear || of(w).unknown;
    if (addend || (adds && t.values[w].shape.view() == value.shape.view())) {
      if (terms > 0) added += std::pow((!near ? 2 : addend ? 4 : spread) * error * size / terms, 2);
      return;
    }
    // A bound that no relation confirms must not grow with each call, or it would explain all.
    if (near) error *= gain;
    grown = std::max(grown, rms > 0 ? error * size / rms : error);
  };
  if (call != nullptr && !is_sum && call->kind == CallKind::kOperation) {
    for (const Port& port : t.Takes(value.maker)) {
      if (port.value != v) count(port.value, port.addend);
    }
  } else {
    for (const ValueId w : inputs) count(w, false);
  }
  if (call != nullptr) grown = std::max(grown, ReachOf(v, value.maker));
  double coarse = roundoff;
  if (guessed) {
    grown = kGain * noise_;
    own *= kOwnOfSums;
    if (IsOfAnyDtype(v)) {
      coarse = std::max(coarse, coarsest_);
      own = std::max(own, kOwnRoundings * coarsest_);
    }
  }
  for (const ValueId w : inputs) coarse = std::max(coarse, Coarse(w));
  const double explained = std::sqrt(grown * grown + added + own * own);
  const double judged = kJudged * std::sqrt(std::max(coarse, roundoff)) * ScaleOf(v);
  const double bound = std::min(explained, judged);
  // Of what code without records made the noise of the run is a guess, which excuses no more.
  return {.error = bound, .wide = guessed ? bound : explained};
}

// A batch norm gives back gradients that add up to nothing in each channel, and the rounding of the
// mean that it takes away is the same for all rows: their sum, as for a bias before it, is that
// rounding times their number. Terms grow with the root of it.
double Relations::OwnOfCancelling(ValueId v) const {
  const auto n = static_cast<double>(std::max<int64_t>(t.values[v].moments.n, 1));
  double own = 0;
  for (const Port& port : t.Takes(t.values[v].maker)) {
    const Value& arriving = t.values[port.value];
    if (arriving.maker == kNoId || !t.calls[arriving.maker].IsBackward()) continue;
    const CallId norm = t.calls[arriving.maker].forward;
    const double rows = static_cast<double>(arriving.moments.n) / n;
    if (norm != kNoId && t.calls[norm].facts->buffers && rows > 1)
      own = std::max(own, kOwnOfExact * std::sqrt(rows));
  }
  return own;
}

// Whether its elements are the golden's, in any order.
bool Relations::IsExact(ValueId v) const {
  const Relation& r = of(v);
  return r.strength == Strength::kEqual ||
         (r.strength == Strength::kSame && r.proven && r.error <= kDigits);
}

bool Relations::IsOfUnrelated(ValueId v) const {
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  return std::any_of(inputs.begin(), inputs.end(), [this](ValueId w) {
    return of(w).strength == Strength::kNone && !t.values[w].plain;
  });
}

// How large what a call takes exponentials of is, in the run where it is smaller: what is wrong
// must not explain itself. 1: it takes none, or of small numbers.
double Relations::ExponentOf(CallId id) const {
  const Call& call = t.calls[id];
  const CallId forward =
      call.kind == CallKind::kBackward && call.forward != kNoId ? call.forward : id;
  const OperationFacts& facts = *t.calls[forward].facts;
  if (!facts.exponentiates) return 1;
  double mine = 0, other = 0;
  for (const Port& port : t.Takes(forward)) {
    const Value& argument = t.values[port.value];
    if (!argument.IsFloat() || argument.plain || !argument.moments.known) continue;
    const ValueId place = AtPartner(port);
    const Moments& there = place == kNoId ? argument.moments : g.values[place].moments;
    if (!std::isfinite(argument.moments.high + there.high)) continue;
    if (!facts.sums_products)  // what is far below the largest becomes nothing, however large it is
      return std::max(1.0, std::min(std::abs(argument.moments.high), std::abs(there.high)));
    if (mine > 0)  // of products of the first two, whose terms have one size
      return std::max(1.0, std::min(mine * argument.moments.Rms(), other * there.Rms()));
    mine = argument.moments.Rms();
    other = there.Rms();
  }
  return 1;
}

// How far the errors of what an elementwise function takes reach in its result or its gradient.
// Where neither the function nor its derivative is steeper than 1, absolute errors do not grow,
// however small the result is. Where a derivative jumps, the elements that are nearer to the jump
// than their error may be on its other side: one may be where a thousandth of one is expected.
double Relations::ReachOf(ValueId v, CallId id) const {
  const Call& call = t.calls[id];
  const bool backward = call.kind == CallKind::kBackward && call.forward != kNoId;
  const CallId forward = backward ? call.forward : id;
  const OperationFacts& facts = *t.calls[forward].facts;
  if (!facts.lipschitz && !(backward && facts.kinks)) return 0;
  double absolute = 0, relative = 0, arriving = backward ? 0 : 1;
  for (const Port& port : t.Takes(forward)) {
    if (of(port.value).strength != Strength::kNear || !t.values[port.value].IsFloat()) continue;
    const double error = ErrorOf(port.value);
    absolute = std::max(absolute, error * Terms(port.value));
    relative = std::max(relative, error * Ratio(port.value));
  }
  if (backward)
    for (const Port& port : t.Takes(id)) arriving = std::max(arriving, Rms(port.value));
  double reach = facts.lipschitz ? absolute * arriving : 0;
  if (facts.kinks && relative > 0) {
    const auto n = static_cast<double>(std::max<int64_t>(t.values[v].moments.n, 1));
    const double expected = kNearZero * std::min(relative, 1.0) * n;
    const double moved = expected + 3 * std::sqrt(expected) + (expected > 1e-3 ? 1 : 0);
    reach = std::max(reach, arriving * std::sqrt(std::min(1.0, moved / n)));
  }
  const double terms = Terms(v);
  return terms > 0 ? 2 * reach / terms : 0;
}

// Whether code without records, of any number of calls, made a value, or the gradient of which it
// was made; or what was added to the gradient before.
bool Relations::IsUnseen(ValueId v, const Inputs& inputs) const {
  const CallId made = t.values[v].maker;
  if (made == kNoId) return inputs.empty() || (!t.PartsOf(v).empty() && !t.AddsUp(v));
  if (t.TakesNoGradient(made) || t.IsOfSecondPass(v)) return true;
  return t.calls[made].kind == CallKind::kGradients &&
         std::all_of(inputs.begin(), inputs.end(), [this](ValueId w) {
           const CallId maker = t.values[w].maker;
           return maker != kNoId && t.calls[maker].kind == CallKind::kGradients;
         });
}

// Of what such code made: whether it is a gradient, which was computed in any dtype of the run,
// since autocast casts what operations take.
bool Relations::IsOfAnyDtype(ValueId v) const {
  const auto uses = t.TakersOf(v);
  const bool goes_backward = std::any_of(uses.begin(), uses.end(), [this](const Taker& use) {
    return t.calls[use.call].IsBackward();
  });
  return (t.values[v].maker != kNoId || goes_backward || MayBeGradient(v)) && !t.IsWeight(v);
}

// Whether a value that no call made may be the gradient of a weight: an optimizer takes it, or
// another operation that comes after a backward call, and a weight has its shape.
bool Relations::MayBeGradient(ValueId v) const {
  const auto uses = t.TakersOf(v);
  const bool updates = std::any_of(uses.begin(), uses.end(), [this](const Taker& use) {
    return t.calls[use.call].kind == CallKind::kUpdate;
  });
  if (updates || uses.empty()) return updates;
  const auto shape = t.values[v].shape.view();
  return uses[0].call > first_backward_ &&
         std::any_of(t.NamedWeights().begin(), t.NamedWeights().end(), [&](const auto& weight) {
           return t.values[weight.first].shape.view() == shape;
         });
}

// How many times the shipped bound a user allows: --thresholds and --tolerance.
double Relations::ScaleOf(ValueId v) const {
  const Value& value = t.values[v];
  const std::string_view api =
      value.maker == kNoId ? "" : t.ApiOf(value.maker);  // "": no operation
  return c.tolerance * c.Thresholds().RoundingScale(api, RoundingOf(value.dtype));
}

// What an optimizer leaves. Where it divides a gradient by its own size, noise becomes a step of
// full size; so weights, and states that hold such steps, are judged by how far they move.
double Relations::BoundOfUpdate(ValueId v, const Call& call) const {
  const Value& value = t.values[v];
  const Record& record = t.dump.records[call.record];
  const auto id = static_cast<CallId>(&call - t.calls.data());
  const auto place_of = [&](const Port& port) {
    std::string_view place = LeafPlace(t.dump.leaves[port.leaf], record);
    if (place.starts_with("0.")) place.remove_prefix(2);
    return place;
  };
  const std::string_view place = place_of(t.made[value.port]);
  ValueId gradient = kNoId, before = kNoId, total = kNoId;
  for (const Port& port : t.Takes(id)) {
    if (place_of(port).starts_with("gradients.")) gradient = port.value;
    if (place_of(port) == place) before = port.value;
    if (place_of(port) == "total_norm") total = port.value;
  }
  // By the total norm clipping divides, and an optimizer that is not known may.
  const double joined = total != kNoId      ? ErrorOf(total)
                        : call.facts->alone ? 0
                                            : ErrorOfAllGradients(id);
  double noise = (gradient == kNoId ? 0 : ErrorOf(gradient) * Ratio(gradient)) + joined;
  const double left = before == kNoId ? 0 : ErrorOf(before);
  const double own = kOwnRoundings * value.roundoff();
  const bool holds_movements = place.starts_with("state.") && !call.facts->linear &&
                               OperationsOf(c).HoldsMovements(place.substr(place.rfind('.') + 1));
  if (place.starts_with("state.") && !holds_movements) {
    // A square has twice the error; that of the largest element is relative to the size of all, and
    // what all share, as the rounding of a norm by which they were divided, adds up in their sum.
    const bool square = place.ends_with("sq") && gradient != kNoId && Rms(gradient) > 0;
    const Moments& m = value.moments;
    const double shared =
        Rms(v) > 0 ? std::abs(m.mean) / Rms(v) * std::sqrt(static_cast<double>(m.n)) : 0;
    const double gain =
        square ? 2 * std::max({kGain, t.values[gradient].moments.Size() / Rms(gradient), shared})
               : kGain;
    return own + (same_environment_ ? 0 : RatesOf(call.record).roundings) * value.roundoff() +
           gain * (noise + noise * noise + left);
  }
  if (!place.starts_with("weights.") && !holds_movements) return own + kGain * noise;
  for (const Port& port : t.Takes(id)) {
    if (place_of(port).starts_with("state.")) noise = std::max(noise, ErrorOf(port.value));
  }
  if ((noise == 0 && left == 0) || (before == kNoId && !holds_movements)) return own;
  const double rate = RatesOf(call.record).learning;
  double moved = before == kNoId ? Rms(v) : Moved(value.moments, t.values[before].moments);
  if (!call.facts->linear && !holds_movements) moved = std::max(moved, rate);
  // Where a gradient is nothing but rounding, so is the movement, in either run.
  const ValueId other = noise >= 1 && gradient != kNoId ? of(gradient).golden : kNoId;
  if (other != kNoId && call.facts->linear)
    moved = std::max({moved, rate * Rms(gradient), rate * g.values[other].moments.Rms()});
  const bool alike = pair[id] != kNoId && !OtherScalars(id);
  double least = alike ? 0.25 : 0.02;
  // Divided by its own size, a gradient that is nothing but rounding moves its element either way:
  // those of keys in a bias of queries, keys and values, a sum that cancels.
  if (alike && noise > 0 && !call.facts->linear && value.shape.extents().size() <= 1)
    least = kOfNoise;
  return own + 4 * left +
         std::min(4.0, std::max(least, 1000 * noise)) * moved / std::max(Rms(v), 1e-30);
}

// An average that decays by a rate adds 1 - rate of what is new. Where a kernel computes that
// number in the dtype of the state, its rounding is 1 / (1 - rate) times that of the rate:
// MindSpore's Adam.
const Relations::Rates& Relations::RatesOf(int32_t update) const {
  if (rates_.record == update) return rates_;
  rates_ = {.record = update};
  for (const Leaf& leaf : t.dump.LeavesOf(t.dump.records[update])) {
    if (leaf.kind != LeafKind::kScalar || !leaf.has_stats) continue;
    const double rate = leaf.max_value;
    if (leaf.name.view().ends_with(".lr"))
      rates_.learning = std::max(rates_.learning, std::abs(rate));
    if (leaf.slot != Slot::kOutput && rate > 0.5 && rate < 1)
      rates_.roundings = std::max(rates_.roundings, 1 / (1 - rate));
  }
  return rates_;
}

// The error of the norm of all gradients that the optimizer's entry of an update takes.
double Relations::ErrorOfAllGradients(CallId update) const {
  const int32_t record = t.calls[update].record;
  if (all_gradients_.record == record) return all_gradients_.error;
  CallId first = update;
  while (first > 0 && t.calls[first - 1].record == record) --first;
  double off = 0, size = 0;
  std::vector<ValueId> gradients;
  for (CallId id = first; id < static_cast<CallId>(t.calls.size()); ++id) {
    if (t.calls[id].record != record) break;
    for (const Port& port : t.Takes(id)) {
      if (!LeafPlace(t.dump.leaves[port.leaf], t.dump.records[record]).starts_with("gradients."))
        continue;
      gradients.push_back(port.value);
      const double n = static_cast<double>(t.values[port.value].moments.n);
      off += n * std::pow(ErrorOf(port.value) * Terms(port.value), 2);
      size += n * std::pow(Rms(port.value), 2);
    }
  }
  all_gradients_ = {.record = record, .error = size > 0 ? std::sqrt(off / size) : 0};
  if (log != nullptr) {
    all_gradients_.step =
        LogStep(kNoId, {.proof = Proof::kJoined, .error = all_gradients_.error}, gradients, -1);
  }
  return all_gradients_.error;
}

// What a step leaves that nobody recorded, of a weight whose gradient had this noise.
double Relations::BoundOfUnseen(ValueId v, ValueId w, const Carried::Unseen& moved) const {
  const double own = kOwnRoundings * t.values[v].roundoff();
  if (moved.noise == 0 || w == kNoId || !g.values[w].moments.known) return own;
  const double far = Moved(g.values[w].moments, moved.before) / std::max(Rms(v), 1e-30);
  return own + std::min(4.0, std::max(0.25, 1000 * moved.noise)) * far;
}

// A wrong value does not become right by being made smaller: what was made of it is right only if
// nothing of its error is left.
double Relations::NotHiding(ValueId v, double bound, double roundoff, double* wrong) const {
  *wrong = 0;
  double near = 0;  // errors of what is near beside it
  for (const ValueId w : t.InputsOf(v, /*saved=*/true)) {
    *wrong = std::max(*wrong, wrong_[w]);
    if (wrong_[w] == 0 && of(w).strength == Strength::kNear) near = std::max(near, of(w).error);
    near = std::max(near, scaled_[w]);
  }
  if (*wrong == 0) return bound;
  return std::min(bound, std::max(*wrong / kContracts, kHidden * roundoff + 2 * near));
}

double Relations::ErrorOf(ValueId v) const {
  const double error = MeasuredOrBound(v);
  if (of(v).strength == Strength::kNear && !of(v).unknown && error > noise_) {
    noise_ = error;
    noise_now_ = now_ + 1;  // it may have been used before
  }
  return error;
}

double Relations::MeasuredOrBound(ValueId v) const {
  const Relation& r = of(v);
  if (r.strength == Strength::kEqual) return 0;
  if (r.strength == Strength::kNear) return std::max(r.error, Coarse(v));
  if (r.unknown) return std::max(r.error, Coarse(v));
  return std::isfinite(r.bound) ? r.bound : 0;
}

// The same operation of the same bits, in the same environment, makes the same bits.
bool Relations::TakesTheSameBits(CallId id) const {
  if (pair[id] == kNoId) return false;
  const Call &mine = t.calls[id], &other = g.calls[pair[id]];
  const auto a = t.Takes(id), b = g.Takes(pair[id]);
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (t.values[a[i].value].content != g.values[b[i].value].content ||
        t.dump.StridesOf(a[i].leaf) != g.dump.StridesOf(b[i].leaf))
      return false;
  }
  if (mine.kind == CallKind::kBackward)
    return mine.forward != kNoId && pair[mine.forward] == other.forward &&
           TakesTheSameBits(mine.forward);
  return mine.kind == CallKind::kOperation && !mine.facts->exchanges && !OtherApi(id) &&
         !mine.facts->other_kernels && !OtherScalars(id) &&
         t.dump.PrecisionOf(mine.record) == g.dump.PrecisionOf(other.record);
}

}  // namespace msprobe::compare::relations
