#include "engine/compare/proofs/growth.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/model/thresholds.h"

namespace msprobe::compare {
namespace {

using relations::Call;
using relations::CallKind;
using relations::kNoId;
using relations::Moments;
using relations::Premise;
using relations::ProofStep;
using relations::Strength;
using relations::Value;

// The numbers of the model of error (docs/explain/how-compare-decides.md).
constexpr double kOfSums = 4;
constexpr double kOfMoves = 4, kOfOthers = 8, kOfCancelling = 32;
constexpr double kGone = 64, kHidden = 4, kOfParts = 4, kOtherWay = 4;

double MovedBy(const Moments& a, const Moments& b) {
  return std::max({std::abs(a.high - b.high), std::abs(a.low - b.low), std::abs(a.mean - b.mean)});
}

double ShareOf(double part, double whole) { return whole > 0 ? part / whole : 0; }

}  // namespace

Growth::Growth(const Comparison& comparison, const relations::Graph& target,
               const relations::Graph& golden)
    : c_(comparison), t_(target), g_(golden) {
  for (const relations::Graph* run : {&t_, &g_}) {
    for (const relations::Port& port : run->made)
      coarsest_ = std::max(coarsest_, run->values[port.value].roundoff());
  }
}

double Growth::ScaleOf(const Value& value) const {
  const std::string_view api = value.maker == kNoId ? "" : t_.ApiOf(value.maker);
  return c_.tolerance * c_.Thresholds().RoundingScale(api, RoundingOf(value.dtype));
}

relations::CallId Growth::ForwardOf(relations::CallId call) const {
  const relations::CallId forward = t_.calls[call].forward;
  return t_.calls[call].IsBackward() && forward != kNoId ? forward : call;
}

// At most so large is a number that an exponential is taken of: an argument, or a product of two.
double Growth::LargestExponent(relations::CallId forward) const {
  const OperationFacts& facts = *t_.calls[forward].facts;
  if (!facts.exponentiates) return 1;
  double largest = 1, product = 1;
  for (const relations::Port& port : t_.Takes(forward)) {
    const Value& argument = t_.values[port.value];
    if (!argument.IsFloat() || !argument.moments.known) continue;
    const double size = argument.moments.Size();
    if (!std::isfinite(size)) continue;
    largest = std::max(largest, size);
    product *= std::max(1.0, size);
  }
  return facts.sums_products ? product : largest;
}

// Of a function that is nowhere steeper than 1, or whose derivative jumps.
double Growth::ReachOfErrors(const ProofStep& step, std::span<const Premise> premises) const {
  const Value& value = t_.values[step.value];
  if (value.maker == kNoId || !(step.terms > 0)) return 0;
  const relations::CallId forward = ForwardOf(value.maker);
  const OperationFacts& facts = *t_.calls[forward].facts;
  const bool backward = forward != value.maker;
  double arriving = backward ? 0 : 1, reach = 0;
  if (backward) {
    for (const relations::Port& port : t_.Takes(value.maker))
      arriving = std::max(arriving, t_.values[port.value].moments.Rms());
  }
  for (const Premise& each : premises) {
    if (each.value < 0) continue;
    const double absolute = each.error * each.terms;
    if (facts.lipschitz) reach = std::max(reach, absolute * arriving);
    if (!facts.kinks || !backward) continue;
    const double share = std::min(1.0, ShareOf(absolute, t_.values[each.value].moments.Rms()));
    const double n = std::max<double>(static_cast<double>(value.moments.n), 1);
    const double jumps = 0.8 * share * n;
    const double most = jumps + 3 * std::sqrt(jumps) + (jumps > 1e-3 ? 1 : 0);
    reach = std::max(reach, arriving * std::sqrt(std::min(1.0, most / n)));
  }
  return 2 * reach / step.terms;
}

// A sum over rows whose gradients a batch norm has made add up to nothing.
double Growth::SharedRounding(const Value& value) const {
  double most = 0;
  for (const relations::Port& port : t_.Takes(value.maker)) {
    const Value& given = t_.values[port.value];
    if (given.maker == kNoId || !t_.calls[given.maker].IsBackward() ||
        !t_.calls[ForwardOf(given.maker)].facts->buffers)
      continue;
    most = std::max(most, kOfParts * std::sqrt(ShareOf(static_cast<double>(given.moments.n),
                                                       static_cast<double>(value.moments.n))));
  }
  return most;
}

bool Growth::IsExact(const ProofStep& step, std::span<const Premise> premises,
                     std::span<const ProofStep> steps) const {
  const Value& value = t_.values[step.value];
  if (value.maker == kNoId || t_.calls[value.maker].kind != CallKind::kOperation ||
      !t_.calls[value.maker].facts->Moves())
    return false;
  return std::ranges::all_of(premises, [&](const Premise& each) {
    return each.step >= 0 && steps[each.step].strength == Strength::kEqual;
  });
}

double Growth::Most(const ProofStep& step, std::span<const Premise> premises, double noise) const {
  const Value& value = t_.values[step.value];
  const Call* call = value.maker == kNoId ? nullptr : &t_.calls[value.maker];
  if (call != nullptr && call->kind == CallKind::kUpdate) return MostOfUpdate(step, premises);
  const bool sum = !t_.PartsOf(step.value).empty();
  const bool unseen =
      call == nullptr || call->kind == CallKind::kGradients || t_.TakesNoGradient(value.maker);
  const bool moves = call != nullptr && call->kind == CallKind::kOperation && call->facts->Moves();
  double roundoff = value.roundoff(), coarse = unseen ? coarsest_ : 0;
  double gain = kOfOthers;
  if (call != nullptr) gain = moves ? kOfMoves : call->facts->Cancels() ? kOfCancelling : kOfOthers;
  const double exponent = call == nullptr ? 1 : LargestExponent(ForwardOf(value.maker));
  gain = std::max(gain, 2 * exponent);
  double grown = 0, added = 0;
  for (const Premise& each : premises) {
    if (each.value < 0) continue;
    const Value& argument = t_.values[each.value];
    roundoff = std::max(roundoff, argument.roundoff());
    coarse = std::max(coarse, each.coarse);
    const double rms = argument.moments.Rms(), size = each.error * each.terms;
    const double relative = rms > 0 ? size / rms : each.error;
    grown = std::max(grown, gain * relative);
    added += std::pow((call == nullptr ? kOfOthers : kOfParts) * ShareOf(size, step.terms), 2);
  }
  double own = (moves ? 1 : kRoundings) * std::max(roundoff, unseen ? coarse : 0);
  const bool long_sum = call != nullptr && (call->facts->Cancels() || !t_.HasOperations() ||
                                            call->facts->kind == OperationClass::kContraction);
  if (long_sum) own *= kOfSums;
  if (unseen) own *= kOfSums;
  if (call != nullptr && call->IsBackward()) own = std::max(own, SharedRounding(value) * roundoff);
  const double roundings = exponent > 1 ? kOfMoves * exponent * roundoff : 0;
  own = std::max(own, roundings);
  const double many = sum ? std::sqrt(static_cast<double>(premises.size()) + 1) : 1;
  own *= ScaleOf(value) * many;
  const double reach = ReachOfErrors(step, premises);
  grown = std::max({grown, reach, unseen ? kOfOthers * noise : 0});
  const double explained = std::sqrt(grown * grown + added + own * own);
  if (step.unknown) return explained;
  return std::min(explained, kJudgedRoots * std::sqrt(std::max(coarse, roundoff)) * ScaleOf(value));
}

double Growth::MostOfUpdate(const ProofStep& step, std::span<const Premise> premises) const {
  const Value& value = t_.values[step.value];
  const Record& record = t_.dump.records[t_.calls[value.maker].record];
  double off = 0, moved = 0, noise = 0, peak = kOfOthers;
  for (const Premise& each : premises) {
    if (each.value < 0) {
      off += each.error;
      continue;
    }
    const Moments& m = t_.values[each.value].moments;
    // Of terms that cancel zero may be left: all of it is noise.
    off += m.Rms() > 0 || each.error * each.terms == 0
               ? each.error * std::max(1.0, ShareOf(each.terms, m.Rms()))
               : std::numeric_limits<double>::infinity();
    noise = std::max(noise, m.Rms() + each.error * each.terms);  // where it is nothing else
    if (m.Rms() > 0) peak = std::max(peak, m.Size() / m.Rms());
    if (m.known && value.moments.known && m.n == value.moments.n)
      moved = std::max(moved, MovedBy(value.moments, m));
  }
  const auto place_of = [&](const relations::Port& port) {
    const std::string_view place = LeafPlace(t_.dump.leaves[port.leaf], record);
    return place.starts_with("0.") ? place.substr(2) : place;
  };
  const std::string_view place = place_of(t_.made[value.port]);
  const bool is_new = std::ranges::none_of(
      t_.Takes(value.maker), [&](const relations::Port& port) { return place_of(port) == place; });
  if (is_new) moved = std::max(moved, value.moments.Rms());
  double rates = 0;
  const bool vector = value.shape.extents().size() <= 1;
  for (const Leaf& leaf : t_.dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kScalar || !leaf.has_stats) continue;
    const double x = leaf.max_value;
    if (leaf.name.view().ends_with(".lr")) {
      moved = std::max(moved, std::abs(x));
      if (off >= 1) moved = std::max(moved, std::abs(x) * noise);
    }
    if (x > 0.5 && x < 1) rates = std::max(rates, 1 / (1 - x));
  }
  // What all elements share shows in the sum of squares.
  const Moments& all = value.moments;
  if (place.ends_with("sq") && all.Rms() > 0)
    peak = std::max(peak, std::abs(all.mean) / all.Rms() * std::sqrt(static_cast<double>(all.n)));
  const double own = (kRoundings + rates) * value.roundoff();
  const double weights = off == 0 ? 0
                                  : std::min(4.0, std::max(vector ? kOtherWay : 0.25, 1000 * off)) *
                                        moved / std::max(value.moments.Rms(), 1e-30);
  return own + 2 * peak * (off + off * off) + weights;
}

double Growth::MostUnseen(const ProofStep& step, double noise, const Moments& before) const {
  const double own = kRoundings * t_.values[step.value].roundoff();
  if (noise == 0 || step.golden < 0) return own;
  const double moved = MovedBy(g_.values[step.golden].moments, before);
  return own + std::min(4.0, std::max(0.25, 1000 * noise)) * moved /
                   std::max(t_.values[step.value].moments.Rms(), 1e-30);
}

double Growth::MostBesideWrong(const ProofStep& step, std::span<const Premise> premises,
                               double wrong) const {
  double near = 0, coarse = t_.values[step.value].roundoff();
  if (step.golden >= 0) coarse = std::max(coarse, g_.values[step.golden].roundoff());
  for (const Premise& each : premises) {
    near = std::max(near, each.wrong == 0 ? each.error : each.scaled);
  }
  return std::max(wrong / kGone, kHidden * coarse + 2 * near);
}

}  // namespace msprobe::compare
