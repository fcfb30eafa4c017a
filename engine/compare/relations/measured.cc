// How far a value of the target is from one of the golden: by their elements, where a row of the
// comparison measured them; else by sketches; else by moments. And which golden value is near one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compare/relations/relate.h"
#include "engine/compare/relations/values/mask.h"

namespace msprobe::compare::relations {
// What was measured of rows: their elements, and how far repeats of the golden are from it; where a
// dump has no moments, all that is known of them.
void Relations::FindBeside() {
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const ValueId v = t.ValueOfLeaf(row.target), w = g.ValueOfLeaf(row.golden);
    if (v == kNoId || w == kNoId) continue;
    const kernels::Diff* diff = c.DiffOf(i);
    const RowVerdict noise = c.by_repeats.empty() ? RowVerdict::kUnknown : c.by_repeats[i];
    const bool told = t.values[v].moments.known && g.values[w].moments.known;
    // The files have shapes that their records do not tell.
    const bool other_files =
        c.measures[i].reason == Reason::kShapeDiffers &&
        t.dump.leaves[row.target].shape.SameWithoutOnes(g.dump.leaves[row.golden].shape);
    if (told && diff == nullptr && noise == RowVerdict::kUnknown && !other_files) continue;
    Beside& beside = beside_[static_cast<uint64_t>(v) << 32 | static_cast<uint32_t>(w)];
    if (noise != RowVerdict::kUnknown) beside.by_repeats = noise;
    if (const Measure& m = c.measures[i];
        !told && (beside.by_row == RowVerdict::kUnknown || m.severity > beside.roundings)) {
      beside.by_row = m.verdict;
      beside.roundings = m.severity;
    }
    beside.other |= other_files;
    if (diff == nullptr) continue;
    beside.other |= diff->nonfinite_mismatch > 0;
    if (!std::isnan(diff->euclidean)) beside.error = std::max(beside.error, diff->euclidean);
  }
}

// A relation of values without moments, as their row was judged; none: it was not.
std::optional<Relation> Relations::ByRow(ValueId v, ValueId w) const {
  const Beside* beside = BesideOf(v, w);
  if (beside == nullptr || beside->by_row == RowVerdict::kUnknown) return std::nullopt;
  const bool same = t.values[v].content != kNoId && t.values[v].content == g.values[w].content;
  const double roundoff = std::max(t.values[v].roundoff(), kDouble);
  Relation r{.proof = Proof::kItsRow, .golden = w, .error = beside->roundings * roundoff};
  switch (beside->by_row) {
    case RowVerdict::kEqual:
      r.strength = same ? Strength::kEqual : Strength::kNear;
      break;
    case RowVerdict::kNoise:
      r.strength = Strength::kNear;
      r.bound = r.error;
      break;
    default:
      r.strength = Strength::kNone;
  }
  return r;
}

// Where a dump has no digests, equal statistics are one content: elements that were compared know
// better.
bool Relations::SameBits(ValueId v, ValueId w) const {
  const int32_t content = t.values[v].content;
  if (content == kNoId || content != g.values[w].content) return false;
  const Beside* beside = BesideOf(v, w);
  return beside == nullptr || (beside->error <= 0 && !beside->other);
}

const Relations::Beside* Relations::BesideOf(ValueId v, ValueId w) const {
  const auto found = beside_.find(static_cast<uint64_t>(v) << 32 | static_cast<uint32_t>(w));
  return found == beside_.end() ? nullptr : &found->second;
}

// Of the rows in any order sketches of one length of rows tell, if both have them; else their
// moments. Of the elements as they stand: the elements themselves, where they were compared.
Apart Relations::ApartOf(ValueId v, ValueId w, double terms) const {
  const Moments &a = t.values[v].moments, &b = g.values[w].moments;
  const double moments = Distance(a, b, terms), size = std::max(b.Rms(), terms);
  if (std::isinf(moments)) return {.in_order = moments, .rows = moments};
  Apart apart = BySketches(v, w, size).value_or(Apart{});
  apart.in_order = std::max(moments, apart.in_order);
  apart.rows = std::max(moments, apart.rows);
  const Beside* beside = BesideOf(v, w);
  if (beside == nullptr || (beside->error < 0 && !beside->other)) return apart;
  // Relative to the size without extremes: a mask of -1e38 must not hide what is beside it.
  const double norm = size * std::sqrt(static_cast<double>(b.n));
  apart.in_order = beside->other ? kInfinity : beside->error == 0 ? 0 : beside->error / norm;
  apart.compared = true;
  return apart;
}

// Of v from `factor` times w.
std::optional<Apart> Relations::BySketches(ValueId v, ValueId w, double size, double factor) const {
  for (const RowSketch& mine : t.SketchesOf(v)) {
    for (const RowSketch& other : g.SketchesOf(w)) {
      if (mine.columns != other.columns || mine.rows != other.rows) continue;
      const Moments& b = g.values[w].moments;
      double norm = size * std::sqrt(static_cast<double>(b.n));
      // NaN leaves no norm: that of the other elements, which alone a sketch has.
      if (b.not_finite > 0) norm = std::max(norm, std::sqrt(std::max(other.sums.squares, 0.0)));
      return DistanceOf(mine, Times(factor, other), norm);
    }
  }
  return std::nullopt;
}

double Relations::FactorOf(ValueId v, ValueId w, double bound) const {
  const Moments &a = t.values[v].moments, &b = g.values[w].moments;
  const bool plain = t.values[v].plain && g.values[w].plain && a.high == a.low && b.high == b.low;
  if (!t.values[v].IsFloat() || !g.values[w].IsFloat() || !a.known || !b.known || a.n != b.n ||
      (a.n < kFewestScaled && !plain) || a.not_finite > 0 || b.not_finite > 0 || a.norm == 0 ||
      b.norm == 0 || !std::isfinite(a.norm / b.norm))
    return 0;
  const double near = std::max(bound, kOwnRoundings * t.values[v].roundoff()), terms = Terms(v);
  for (const double factor : {a.norm / b.norm, -a.norm / b.norm}) {
    if (std::abs(factor - 1) <= kSurely * near) continue;
    const Moments scaled = Times(factor, b);
    if (!(Distance(a, scaled, terms) <= near)) continue;
    const std::optional<Apart> apart = BySketches(v, w, std::max(scaled.Rms(), terms), factor);
    if (!apart || apart->in_order <= near) return factor;
  }
  return 0;
}

// How far a value is from a number times its partner: what divides it by that number keeps this. A
// value without a partner is as far as what it was made of.
double Relations::ErrorOfFactor(ValueId v, const Relation& r) const {
  if (r.strength != Strength::kNone) return 0;
  if (r.golden == kNoId) {
    double most = 0;
    for (const ValueId w : t.InputsOf(v, /*saved=*/true)) most = std::max(most, scaled_[w]);
    return most;
  }
  if (r.factor == 0) return 0;
  const Moments scaled = Times(r.factor, g.values[r.golden].moments);
  const double terms = Terms(v), moments = Distance(t.values[v].moments, scaled, terms);
  const auto apart = BySketches(v, r.golden, std::max(scaled.Rms(), terms), r.factor);
  const double error = apart ? std::max(moments, apart->in_order) : moments;
  return std::isfinite(error) ? error : 0;
}

// Whether the elements are within the bound as they stand. `like`: their moments are the same.
bool Relations::IsNearInPlace(ValueId v, bool like, const Apart& apart, double bound) const {
  // Rounding shows as much in the sums of rows, and in the extremes, as in the rows as they stand.
  constexpr double kMuchMore = 1024;
  const bool elsewhere = like && apart.proven && !apart.one_row && !apart.joined &&
                         apart.in_order > kOwnRoundings * t.values[v].roundoff() &&
                         kMuchMore * apart.rows <= apart.in_order;
  return apart.in_order <= bound && !elsewhere && !(apart.proven && MustMove(v));
}

// How v is related to w, by what was measured of the two.
Relation Relations::CompareWith(ValueId v, ValueId w, double bound, bool exact, Proof proof) const {
  const Value &a = t.values[v], &b = g.values[w];
  Relation r{.proof = proof, .golden = w, .bound = bound};
  if (!a.moments.known || !b.moments.known || b.unwritten) {
    if (const auto by_row = b.unwritten ? std::nullopt : ByRow(v, w)) return *by_row;
    if (IsOfTwoJoined()) return OfOpen(v, w, bound);
    r.strength = Strength::kEqual;
    r.proof = Proof::kNotRecorded;
    return r;
  }
  const Beside* beside = BesideOf(v, w);
  if (beside != nullptr && beside->by_repeats == RowVerdict::kNoise) {
    const double error = ApartOf(v, w, Terms(v)).in_order;
    return {.strength = Strength::kNear,
            .proof = Proof::kRepeats,
            .golden = w,
            .error = std::isfinite(error) ? error : 0,
            .bound = bound,
            .proven = true};
  }
  const bool no_repeat = beside != nullptr && beside->by_repeats == RowVerdict::kDiffers;
  // Where bits decide, the same elements in another order are other ones.
  const bool by_bits = !c.exact.empty() || (c.mode == Mode::kChecksum && !c.tolerant);
  if ((no_repeat || by_bits) && a.has_digest && b.has_digest) return r;
  exact |= no_repeat;
  bool like = SameElements(a.moments, b.moments);
  if (!a.IsFloat() || !b.IsFloat()) {  // integers do not round
    const Apart apart = ApartOf(v, w, 0);
    // Means of parts add up to that of the whole as far as they have digits.
    const double exactly = apart.joined ? kDigits : kOwnRoundings * kDouble;
    like = like && (!apart.proven || apart.one_row || apart.rows <= exactly);
    const bool in_order = apart.joined && apart.joined_in_order;
    r.strength = !like                            ? Strength::kNone
                 : a.dtype != b.dtype || in_order ? Strength::kNear
                                                  : Strength::kSame;
    r.error = like ? 0 : kInfinity;
    r.bound = 0;
    r.like = like;
    r.proven = like && apart.proven &&
               ((r.strength == Strength::kSame && !apart.one_row) || apart.in_order <= exactly);
    return r;
  }
  if (a.dtype.dtype() != b.dtype.dtype()) {
    const double coarse = std::max(a.roundoff(), b.roundoff());
    double wrong = 0;
    r.bound = std::max(bound, NotHiding(v, kOwnRoundings * coarse, coarse, &wrong));
    exact = false;
  }
  const Apart apart = ApartOf(v, w, Terms(v));
  // Where nothing explains other bits, and a dump does not tell them, its numbers must be the same.
  const bool told = a.has_digest && b.has_digest;
  const bool near = exact ? !told && apart.in_order == 0 : IsNearInPlace(v, like, apart, r.bound);
  // Another order shows much more in the elements as they stand than in their rows.
  const bool same_rows = apart.rows <= std::max(r.bound, kOwnRoundings * kDouble) &&
                         (near || kSurely * apart.rows <= apart.in_order);
  like = (like && !apart.proven) || (apart.proven && same_rows);
  r.strength = near ? Strength::kNear : like ? Strength::kSame : Strength::kNone;
  r.error = r.strength == Strength::kSame ? apart.rows : apart.in_order;
  // The mean of two sums over ranks does not show that what is added up is right.
  if (IsOfTwoJoined() && a.moments.mean_only && b.moments.mean_only && IsOfWrong(v))
    r.strength = Strength::kNone;
  // Every bit of another framework is another one.
  r.like = like && a.dtype.dtype() == b.dtype.dtype() && !(near && of_two_frameworks);
  r.proven = r.strength != Strength::kNone &&
             (near ? apart.proven || apart.compared : apart.proven && !apart.one_row);
  return r;
}

// Gradients of weights may be equal but for rounding: those of two biases whose sum is taken, or
// what terms that cancel leave. A value of the target is related to one of these; the other one is
// found where what the target makes at its place is near it, too.
void Relations::FindAgain() {
  const auto made_again = [this](CallId mine, const Port& there) {
    return std::ranges::any_of(t.Makes(mine), [&](const Port& made) {
      const Relation& r = of(made.value);
      return made.place == there.place && r.strength == Strength::kNear && !r.unknown &&
             !t.values[made.value].plain &&
             (t.calls[mine].IsOfParameters() || t.IsGradientOfWeight(made.value)) &&
             Fits(made.value, there.value);
    });
  };
  const auto look = [&](std::span<const CallId> mine, std::span<const CallId> others) {
    mine = mine.first(std::min<size_t>(mine.size(), kMostCandidates));
    for (const CallId call : others) {
      for (const Port& port : g.Makes(call)) {
        if (has_[port.value] == 0 && !g.values[port.value].plain)
          has_[port.value] =
              std::ranges::any_of(mine, [&](CallId id) { return made_again(id, port); });
      }
    }
  };
  for (const Place& place : places_) look(place.mine, place.others);
  const auto collect = [this](const Graph& run, std::vector<CallId> Group::*side) {
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      if (run.calls[id].IsOfParameters()) (of_parameter_[ParameterOf(run, id)].*side).push_back(id);
    }
  };
  collect(t, &Group::mine);
  collect(g, &Group::others);
  for (const auto& [key, calls] : of_parameter_) look(calls.mine, calls.others);
}

bool Relations::IsOfAnotherPass(CallId call, const Port& port) const {
  const auto found = of_parameter_.find(ParameterOf(t, call));
  if (found == of_parameter_.end()) return false;
  const bool made = t.values[port.value].maker == call;
  return std::ranges::any_of(found->second.others, [&](CallId id) {
    return std::ranges::any_of(made ? g.Makes(id) : g.Takes(id), [&](const Port& other) {
      return other.place == port.place && Fits(port.value, other.value);
    });
  });
}

bool Relations::FitsOrWrong(ValueId v, ValueId w) const {
  return w == kNoId || Fits(v, w) || (of(v).strength == Strength::kNone && !t.values[v].plain);
}

// Few numbers in another order may be those of some other value, too: lengths that one run sorts.
// They are the partner's if the same call made them of what stands in another order.
bool Relations::IsMadeReordered(ValueId v, ValueId w) const {
  const Value& value = t.values[v];
  if (value.maker == kNoId || AtPartner(t.made[value.port]) != w || !Alike(value.maker) ||
      !SameElements(value.moments, g.values[w].moments))
    return false;
  const Inputs inputs = t.InputsOf(v, false);
  const auto reordered = [this](ValueId u) { return of(u).strength == Strength::kSame; };
  return std::any_of(inputs.begin(), inputs.end(), reordered) &&
         std::all_of(inputs.begin(), inputs.end(),
                     [&](ValueId u) { return t.values[u].plain || IsRight(u); });
}

bool Relations::Fits(ValueId v, ValueId w) const {
  if (w == kNoId) return false;
  const Value &a = t.values[v], &b = g.values[w];
  const Relation& r = of(v);
  if ((r.golden == w && r.strength >= Strength::kSame) || SameBits(v, w) ||
      (part_[v] != 0 && covered_[w] != 0) || a.unwritten || b.unwritten)
    return true;
  if ((!a.moments.known || !b.moments.known) && !(a.has_digest && b.has_digest)) {
    const Beside* beside = BesideOf(v, w);  // what was not recorded is not another value
    return beside == nullptr || beside->by_row != RowVerdict::kDiffers;
  }
  if (a.plain) {  // what rounding leaves of terms that cancel may be a round number, too
    const double own = kOwnRoundings * std::max(a.roundoff(), b.roundoff());
    return !a.moments.known || !b.moments.known ||
           Distance(a.moments, b.moments, Terms(v)) <= std::max(part_[v] != 0 ? r.bound : 0, own);
  }
  if (r.strength < Strength::kSame) return false;
  if (r.strength == Strength::kEqual && a.dtype.dtype() == b.dtype.dtype()) {
    const Apart apart = ApartOf(v, w, 0);
    return (apart.in_order <= kOwnRoundings * a.roundoff() &&
            (apart.proven || !SameElements(a.moments, b.moments))) ||
           IsMadeReordered(v, w);
  }
  const Apart apart = ApartOf(v, w, Terms(v));
  const double error = r.strength == Strength::kSame ? apart.rows : apart.in_order;
  return error <= std::max({r.bound, kOwnRoundings * std::max(a.roundoff(), b.roundoff()),
                            kOwnRoundings * kDouble});
}

// A golden value with the same moments, whatever call made it.
Relation Relations::Search(ValueId v, double bound, bool exact, bool wide) const {
  const Value& value = t.values[v];
  Relation best{.proof = Proof::kNotFound, .bound = bound};
  const Moments& m = value.moments;
  if (!m.known || !std::isfinite(m.norm)) return best;
  if (const Mask mask = MaskOf(value); mask.coding != Mask::kNone) {
    for (const ValueId w : by_elements_.Of(MaskKey(mask))) {
      const Mask other = MaskOf(g.values[w]);
      if (other.coding != Mask::kNone && other.coding != mask.coding)
        return {.strength = Strength::kNear, .proof = Proof::kMask, .golden = w, .bound = bound};
    }
  }
  // What stands elsewhere must be proven, if it has a sketch.
  const auto counts = [&](const Relation& r) {
    return r.proven || m.n == 1 || t.SketchesOf(v).empty();
  };
  int looked = 0;
  for (const ValueId w : by_elements_.Of(ElementsKey(m))) {
    if (++looked > kMostCandidates) break;
    Relation near = CompareWith(v, w, bound, exact, Proof::kSameNumbers);
    if (near.strength > best.strength && near.proof == Proof::kSameNumbers && counts(near))
      best = near;
  }
  if (best.strength >= Strength::kNear || exact || !value.IsFloat() || m.norm == 0) return best;
  // Most values of one size have about one norm: those whose ends are elsewhere are not looked at.
  const double terms = Terms(v);
  // Relative to its own size; where half of its digits may be off, anything is near.
  const double near_norm = std::max(bound, std::min(bound * Ratio(v), std::sqrt(value.roundoff())));
  const auto may_fit = [&](const NormIndex::Item& other) {
    if (other.dtype != value.dtype.dtype()) return true;
    const double ends = std::max(std::abs(m.high - other.high), std::abs(m.low - other.low));
    return ends <= bound * std::max({std::abs(other.high), std::abs(other.low), terms});
  };
  for (const NormIndex::Item& other :
       by_norm_.Near(m.n, m.norm * (1 - near_norm), m.norm * (1 + 2 * near_norm))) {
    if (!may_fit(other) || !g.values[other.value].IsFloat()) continue;
    Relation near = CompareWith(v, other.value, bound, exact, Proof::kNearNumbers);
    if (near.strength >= Strength::kNear && near.proof == Proof::kNearNumbers && counts(near) &&
        (best.strength < Strength::kNear || near.error < best.error))
      best = near;
  }
  const double likely = wide || best.proven ? std::max(best.error, kDigits) : near_norm;
  if (best.strength == Strength::kNear && best.proof == Proof::kNearNumbers &&
      (wide || !best.proven || m.n >= kFewestScaled) && MayBeChance(m.n, likely))
    return {.proof = Proof::kNotFound, .bound = bound};
  return best;
}

// Whether some value of n elements may be found by chance: each of the statistics agrees with a
// probability of what it may be off by, or of its distance. Of few elements a sketch says more than
// statistics.
bool Relations::MayBeChance(int64_t n, double likely) const {
  const double chance = -std::min<double>(4, static_cast<double>(n)) * std::log10(likely);
  return chance < std::log10(static_cast<double>(by_norm_.CountOf(n))) + 3;
}

}  // namespace msprobe::compare::relations
