// Values that have another form than the golden's: padded, transposed, complex numbers for pairs of
// real ones (relate.h).
#include <algorithm>
#include <cmath>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

bool AreTransposed(const Value& a, const Value& b) {
  const auto mine = a.shape.extents(), other = b.shape.extents();
  return mine.size() == 2 && other.size() == 2 && mine[0] == other[1] && mine[1] == other[0] &&
         mine[0] > 1 && mine[1] > 1 && a.IsFloat() && b.IsFloat() && a.moments.known &&
         b.moments.known;
}

// The distance of two values that have equally many numbers besides zeros.
double DistanceWithZeros(Moments a, Moments b, double terms) {
  a.mean *= static_cast<double>(a.n) / static_cast<double>(b.n);
  a.n = b.n;
  for (Moments* each : {&a, &b}) {
    each->high = std::max(each->high, 0.0);
    each->low = std::min(each->low, 0.0);
  }
  return Distance(a, b, terms);
}

// Whether the range of one value holds that of another.
bool Holds(const Moments& longer, const Moments& shorter, double bound) {
  const double near = bound * shorter.Size();
  return longer.high >= shorter.high - near && longer.low <= shorter.low + near;
}

// Whether the moduli of one may be those of pairs of the other.
bool MayBePairs(const Value& a, const Value& b, double bound) {
  if (a.IsComplex() == b.IsComplex() || !a.IsFloat() || !b.IsFloat()) return false;
  const Moments &moduli = (a.IsComplex() ? a : b).moments, &parts = (a.IsComplex() ? b : a).moments;
  for (const Moments* each : {&moduli, &parts}) {
    if (!each->known || each->mean_only || each->not_finite > 0 || each->extremes > 0) return false;
  }
  const double size = parts.Size(), near = 1 + bound;
  return 2 * moduli.n == parts.n && size <= moduli.high * near &&
         moduli.high <= std::sqrt(2.0) * size * near;
}

// What a run makes of an angle.
struct Circle {
  ValueId complex = kNoId, cosine = kNoId, sine = kNoId;
  bool HasParts() const { return cosine != kNoId && sine != kNoId; }
};

Circle CircleOf(const Graph& run, ValueId angle) {
  Circle circle;
  for (const Taker& use : run.TakersOf(angle)) {
    const auto takes = run.Takes(use.call), makes = run.Makes(use.call);
    if (run.calls[use.call].kind != CallKind::kOperation || makes.size() != 1) continue;
    const std::string_view name = BaseApi(run.ApiOf(use.call));
    if (name == "cos") circle.cosine = makes[0].value;
    if (name == "sin") circle.sine = makes[0].value;
    if (name != "polar" || takes.size() != 2 || takes[1].value != angle) continue;
    const Moments& moduli = run.values[takes[0].value].moments;
    if (moduli.known && moduli.low == 1 && moduli.high == 1) circle.complex = makes[0].value;
  }
  return circle;
}

}  // namespace

bool Relations::IsMadeOfPadded(ValueId v) const {
  const CallId maker = t.values[v].maker;
  if (maker == kNoId || !Alike(maker)) return false;
  const Inputs inputs = t.InputsOf(v, false);
  return std::any_of(inputs.begin(), inputs.end(),
                     [this](ValueId u) { return of(u).proof == Proof::kPadded; }) &&
         std::all_of(inputs.begin(), inputs.end(),
                     [this](ValueId u) { return t.values[u].plain || IsKnown(u); });
}

// A batch that one run pads more than the other: a value has the rows of its partner, and zeros
// besides, which add nothing to its sums; or, if it is made of a padded value, what is computed of
// zeros: rows that are equal.
std::optional<Relation> Relations::AsPadded(ValueId v, ValueId w, double bound) const {
  const Value &value = t.values[v], &other = g.values[w];
  const Moments &a = value.moments, &b = other.moments;
  if (!c.exact.empty() || !a.known || !b.known || a.n == b.n || a.not_finite + b.not_finite > 0 ||
      a.extremes + b.extremes > 0 || value.dtype.dtype() != other.dtype.dtype() ||
      value.shape.extents().size() != other.shape.extents().size())
    return std::nullopt;
  const double terms = value.IsFloat() ? Terms(v) : 0;
  Relation r{.strength = Strength::kNear,
             .proof = Proof::kPadded,
             .golden = w,
             .bound = std::max(value.IsFloat() ? bound : 0, kDigits)};
  const double size = std::max(b.Rms(), terms) * std::sqrt(static_cast<double>(b.n));
  const bool zeros = a.zeros >= 0 && b.zeros >= 0 && a.n - a.zeros == b.n - b.zeros;
  const bool made_of_padded = !zeros && value.IsFloat() && IsMadeOfPadded(v);
  r.error = zeros ? DistanceWithZeros(a, b, terms) : kInfinity;
  for (RowSketch mine : t.SketchesOf(v)) {
    for (RowSketch there : g.SketchesOf(w)) {
      if (mine.columns != there.columns || r.proven) continue;
      const bool more = mine.rows > there.rows;
      if (!zeros && made_of_padded && (more ? Holds(a, b, r.bound) : Holds(b, a, r.bound)))
        r.error = DistanceOfPadded(more ? mine : there, more ? there : mine, size);
      mine.rows = there.rows;
      if (zeros) r.error = std::max(r.error, DistanceOf(mine, there, size).rows);
      r.proven = there.rows > 1;
    }
  }
  return r.error <= r.bound ? std::optional(r) : std::nullopt;
}

// Complex numbers where the golden has their real and imaginary parts side by side, or the other
// way. Of both a sketch has the same rows, if both were seen with them. Else a call that only
// changes the form of one argument keeps its pairs; of other calls the norm is no proof.
std::optional<Relation> Relations::AsPairs(ValueId v, ValueId w, double bound) const {
  const Value &a = t.values[v], &b = g.values[w];
  const Beside* beside = BesideOf(v, w);
  const bool by_bits = !c.exact.empty() || (c.mode == Mode::kChecksum && !c.tolerant) ||
                       (beside != nullptr && beside->by_repeats == RowVerdict::kDiffers);
  if (by_bits || a.plain || b.plain || b.unwritten || !MayBePairs(a, b, bound)) return std::nullopt;
  // The rows of the two were summed in other dtypes (kernels/sketch.h).
  double wrong = 0;
  const double coarse = std::max(a.roundoff(), b.roundoff());
  const double own =
      std::max(4 * kDigits, a.roundoff() == b.roundoff() ? 0 : kOwnRoundings * coarse);
  Relation r{.strength = Strength::kNear,
             .proof = Proof::kPairs,
             .golden = w,
             .bound = std::max(bound, NotHiding(v, own, coarse, &wrong))};
  const double size =
      std::max(b.moments.norm, Terms(v) * std::sqrt(static_cast<double>(a.moments.n)));
  if (size == 0) return std::nullopt;
  r.error = std::abs(a.moments.norm - b.moments.norm) / size;
  const double root = std::sqrt(static_cast<double>(b.moments.n));
  if (const auto apart = BySketches(v, w, size / root); apart && !apart->joined) {
    r.error = std::max(r.error, apart->in_order);
    r.proven = true;
  } else {
    const CallId maker = t.values[v].maker;
    const Inputs inputs = t.InputsOf(v, false);
    const bool views = maker == kNoId ? t.MovedFrom(v) != kNoId
                                      : t.calls[maker].facts->kind == OperationClass::kKeeps;
    if (!views || inputs.size() != 1) return std::nullopt;
    const ValueId from = *inputs.begin();
    if (t.values[from].IsComplex() == a.IsComplex() || of(from).golden != w ||
        of(from).strength < Strength::kNear || of(from).doubtful)
      return std::nullopt;
  }
  return r.error <= r.bound ? std::optional(r) : std::nullopt;
}

// The same of the golden's value at its place, of that of an argument, or of any with such a norm.
std::optional<Relation> Relations::AsAnyPairs(ValueId v, ValueId w, double bound) const {
  const Value& value = t.values[v];
  const Moments& m = value.moments;
  if (!(value.IsComplex() || complex_there_) || !value.IsFloat() || !m.known || m.norm == 0 ||
      !std::isfinite(m.norm))
    return std::nullopt;
  if (w != kNoId) {
    if (auto there = AsPairs(v, w, bound)) return there;
  }
  for (const ValueId u : t.InputsOf(v, false)) {
    if (of(u).golden == kNoId) continue;
    if (auto there = AsPairs(v, of(u).golden, bound)) return there;
  }
  std::optional<Relation> best;
  const double near = std::max(bound, 4 * kDigits);
  for (const NormIndex::Item& each : by_norm_.Near(value.IsComplex() ? 2 * m.n : m.n / 2,
                                                   m.norm * (1 - near), m.norm * (1 + 2 * near))) {
    const auto found = AsPairs(v, each.value, bound);
    if (found && found->proven && (!best || found->error < best->error)) best = found;
  }
  return best;
}

// polar(1, x) = cos(x) + i sin(x): what two runs make of one angle needs no sketch, which does not
// tell the two halves of one run from the pairs of the other.
void Relations::RelatePolar(CallId call) {
  if (t.calls[call].kind != CallKind::kOperation || !c.exact.empty()) return;
  const std::string_view name = BaseApi(t.ApiOf(call));
  if (name != "cos" && name != "sin" && name != "polar") return;
  for (const Port& port : t.Takes(call)) {
    const Relation& angle = of(port.value);
    if (angle.golden == kNoId || angle.strength < Strength::kNear || angle.doubtful ||
        t.values[port.value].plain)
      continue;
    const Circle mine = CircleOf(t, port.value), other = CircleOf(g, angle.golden);
    if (mine.complex != kNoId && other.HasParts() && other.complex == kNoId)
      RelateCircles({{mine.complex}}, {{other.cosine, other.sine}}, port.value);
    if (other.complex != kNoId && mine.HasParts() && mine.complex == kNoId)
      RelateCircles({{mine.cosine, mine.sine}}, {{other.complex}}, port.value);
  }
}

bool Relations::RelateCircles(std::span<const ValueId> mine, std::span<const ValueId> others,
                              ValueId angle) {
  double a = 0, b = 0, roundoff = 0;  // sums of squares
  const auto add = [&roundoff](const Value& value, double* squares) {
    const Moments& m = value.moments;
    *squares += m.norm * m.norm;
    roundoff = std::max(roundoff, value.roundoff());
    return m.known && value.IsFloat() && m.not_finite == 0;
  };
  for (const ValueId v : mine) {
    if (!add(t.values[v], &a)) return false;
  }
  for (const ValueId w : others) {
    if (!add(g.values[w], &b)) return false;
  }
  if (b == 0 || t.values[mine[0]].moments.n != g.values[others[0]].moments.n) return false;
  const double error = std::abs(std::sqrt(a / b) - 1);
  std::vector<double> bounds;
  for (const ValueId v : mine) {
    double wrong = 0;
    bounds.push_back(
        std::max(BoundOf(v).error, NotHiding(v, kOwnRoundings * roundoff, roundoff, &wrong)));
    if (!(error <= bounds.back())) return false;
  }
  int32_t together = -1;
  if (log != nullptr) {
    together = static_cast<int32_t>(log->together.size());
    log->together.push_back({.target = {mine.begin(), mine.end()},
                             .golden = {others.begin(), others.end()},
                             .error = error});
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    if (!IsKnown(mine[i])) {
      Set(mine[i],
          {.strength = Strength::kNear, .proof = Proof::kPolar, .error = error, .bound = bounds[i]},
          {{angle}}, together);
    }
    Keep(&wrong_[mine[i]], 0.0, mine[i]);
    Keep<char>(&part_[mine[i]], 1, mine[i]);
  }
  Cover(others);
  return true;
}

// A matrix that one run holds transposed: the weight of a Conv1D and that of the Linear layer in
// its place, and with it its gradient, the state of its optimizer and what the optimizer makes of
// them. Its moments are the golden's; the rows of which sketches tell are its columns.
//
// The weight of a call is the transpose of the golden's where they have the same elements, and all
// that the call makes of it is right: what a matrix in a wrong order gives is not.
void Relations::RelateTransposed(CallId call) {
  const Call& each = t.calls[call];
  if (each.kind == CallKind::kUpdate) return RelateUpdateOfTransposed(call);
  if (!each.IsForward()) return;
  for (const Port& port : t.Takes(call)) {
    const ValueId v = port.value;
    const Value& value = t.values[v];
    if (of(v).proof == Proof::kLeftSo) transposed_[v] |= ArrivesTransposed(v);
    if (!t.IsWeight(v) || value.maker != kNoId || IsKnown(v) || value.plain) continue;
    const auto makes = t.Makes(call);
    if (makes.empty() || !std::all_of(makes.begin(), makes.end(),
                                      [this](const Port& made) { return IsKnown(made.value); }))
      return;
    const std::span<const ValueId> like = by_elements_.Of(ElementsKey(value.moments));
    const auto same = std::find_if(like.begin(), like.end(), [&](ValueId w) {
      return g.IsWeight(w) && g.values[w].maker == kNoId && AreTransposed(value, g.values[w]) &&
             SameElements(value.moments, g.values[w].moments);
    });
    if (same == like.end()) continue;
    std::vector<ValueId> results;
    for (const Port& made : makes) results.push_back(made.value);
    SetTransposed(v, *same, 0, 0, results);
  }
}

// The step before left it so: the golden's rows are not its own.
bool Relations::ArrivesTransposed(ValueId v) const {
  const Relation& r = of(v);
  if (r.golden == kNoId || !AreTransposed(t.values[v], g.values[r.golden])) return false;
  const auto apart = BySketches(v, r.golden, t.values[v].moments.Rms());
  return apart &&
         apart->in_order > kSurely * std::max(r.bound, kOwnRoundings * t.values[v].roundoff());
}

// What one optimizer's step takes and makes of such a weight.
void Relations::RelateUpdateOfTransposed(CallId call) {
  const auto transposed = [this](const Port& port) { return transposed_[port.value] != 0; };
  const auto takes = t.Takes(call);
  if (std::none_of(takes.begin(), takes.end(), transposed)) return;
  std::vector<ValueId> moved;
  for (const Port& port : takes) {
    if (transposed(port)) moved.push_back(port.value);
  }
  for (const auto ports : {takes, t.Makes(call)}) {
    for (const Port& port : ports) {
      const ValueId v = port.value, w = AtPartner(port);
      if (w == kNoId || IsKnown(v) || !AreTransposed(t.values[v], g.values[w])) continue;
      const double bound = BoundOf(v).error;
      const double error = Distance(t.values[v].moments, g.values[w].moments, Terms(v));
      if (error <= std::max(bound, kOwnRoundings * t.values[v].roundoff()))
        SetTransposed(v, w, error, bound, moved);
    }
  }
}

void Relations::SetTransposed(ValueId v, ValueId w, double error, double bound,
                              std::span<const ValueId> more) {
  Set(v,
      {.strength = Strength::kNear,
       .proof = Proof::kTransposed,
       .golden = w,
       .error = error,
       .bound = bound},
      more);
  transposed_[v] = 1;
  Keep(&wrong_[v], 0.0, v);
}

}  // namespace msprobe::compare::relations
