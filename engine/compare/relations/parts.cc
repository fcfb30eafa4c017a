// Values that are together what others are together: pieces of a weight, parts of a batch, addends; and
// those that have another form: padded, transposed, complex numbers for pairs of real ones (relate.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

// What the calls of a group take or make in one slot, or in any, with rows as `like` has them.
std::vector<ValueId> InSlot(const Graph& run, const std::vector<CallId>& calls, int32_t place,
                            bool made, bool any, const Value& like) {
  std::vector<ValueId> out;
  for (const CallId id : calls) {
    for (const Port& other : made ? run.Makes(id) : run.Takes(id)) {
      if (!any && other.place != place) continue;
      const Value& value = run.values[other.value];
      const auto a = value.shape.extents(), b = like.shape.extents();
      const bool rows = a.size() > 1 && b.size() > 1 ? a.back() == b.back() : a.size() == b.size();
      if (rows && value.dtype.dtype() == like.dtype.dtype()) out.push_back(other.value);
    }
  }
  return out;
}

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

bool IsComplex(const Value& value) { return RoundingOf(value.dtype).kind == NumberKind::kComplex; }

// Whether the moduli of one may be those of pairs of the other.
bool MayBePairs(const Value& a, const Value& b, double bound) {
  if (IsComplex(a) == IsComplex(b) || !a.IsFloat() || !b.IsFloat()) return false;
  const Moments &moduli = (IsComplex(a) ? a : b).moments, &parts = (IsComplex(a) ? b : a).moments;
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

// How far values are together from what others are together: as parts of a batch, as addends, or
// side by side.
double Relations::TogetherApart(std::span<const ValueId> mine, std::span<const ValueId> others,
                                double terms, bool* proven) const {
  std::vector<Moments> a, b;
  for (const ValueId v : mine) a.push_back(t.values[v].moments);
  for (const ValueId w : others) b.push_back(g.values[w].moments);
  const Moments all = Join(a), whole = Join(b);
  const double moments = Distance(all, whole, terms);
  *proven = false;
  std::vector<RowSketch> x, y;
  const auto collect = [](const Graph& run, std::span<const ValueId> values, int64_t columns,
                          std::vector<RowSketch>* out) {
    for (const ValueId v : values) {
      for (const RowSketch& sketch : run.SketchesOf(v)) {
        if (columns != 0 && sketch.columns != columns) continue;
        out->push_back(sketch);
        break;
      }
    }
    return out->size() == values.size();
  };
  const double size = std::max(whole.Rms(), terms) * std::sqrt(static_cast<double>(whole.n));
  for (const RowSketch& first : t.SketchesOf(mine[0])) {
    x.clear(), y.clear();
    if (!collect(t, mine, first.columns, &x) || !collect(g, others, first.columns, &y)) continue;
    *proven = true;
    const double rows = std::max(moments, DistanceOfRows(x, y, size));
    // As many values may have one sum by chance: a and 1 - a.
    const bool may_add_up = mine.size() != others.size() && all.extremes == 0;
    return may_add_up ? std::min(rows, DistanceOfSums(x, y, size)) : rows;
  }
  x.clear(), y.clear();
  if (!collect(t, mine, 0, &x) || !collect(g, others, 0, &y)) return moments;
  *proven = true;
  return std::max(moments, DistanceSideBySide(x, y, size));
}

// Parameters that one run has in one piece and the other in several, one after the other.
void Relations::FindPieces() {
  const auto lone = [](const Graph& run, const Graph& other, const std::vector<int32_t>& partners) {
    std::vector<ValueId> out;
    for (const Port& port : run.taken) {
      const Leaf& leaf = run.dump.leaves[port.leaf];
      const bool weight = leaf.slot == Slot::kParameter || run.IsWeight(port.value);
      const int32_t there = partners[port.leaf];
      const bool alone = there < 0 || other.dump.leaves[there].shape.view() != leaf.shape.view();
      if (weight && alone && !run.values[port.value].plain &&
          run.values[port.value].maker == kNoId &&
          std::find(out.begin(), out.end(), port.value) == out.end())
        out.push_back(port.value);
      if (out.size() > 4096) break;  // so many have no partner: the models are other ones
    }
    return out;
  };
  const std::vector<ValueId> mine = lone(t, g, golden_leaf_), others = lone(g, t, target_leaf_);
  const auto search = [&](const Graph& one, const std::vector<ValueId>& wholes, const Graph& many,
                          const std::vector<ValueId>& parts, bool whole_in_target) {
    for (const ValueId whole : wholes) {
      const Value& value = one.values[whole];
      for (size_t i = 0; i < parts.size(); ++i) {
        std::vector<ValueId> group;
        int64_t n = 0;
        for (size_t j = i; j < parts.size() && n < value.shape.elements(); ++j) {
          const auto rows = many.values[parts[j]].shape.extents(),
                     whole_rows = value.shape.extents();
          if (rows.size() != whole_rows.size() ||
              (rows.size() > 1 && rows.back() != whole_rows.back() && rows[0] != whole_rows[0]))
            continue;  // a bias between weights, say
          group.push_back(parts[j]);
          n += many.values[parts[j]].shape.elements();
        }
        if (n != value.shape.elements() || group.size() < 2) continue;
        const std::vector<ValueId> single = {whole};
        const double left = whole_in_target
                                ? RelateParts(single, group, 4 * kDigits, Proof::kPieceOfWeight)
                                : RelateParts(group, single, 4 * kDigits, Proof::kPieceOfWeight);
        if (left != 0) continue;
        KeepHolders(whole_in_target ? single : group, whole_in_target ? group : single);
        break;
      }
    }
  };
  search(g, others, t, mine, false);
  search(t, mine, g, others, true);
}

// The modules that hold pieces of one weight hold those of the other parameters, too.
void Relations::KeepHolders(std::span<const ValueId> mine, std::span<const ValueId> others) {
  const auto paths_of = [](const Graph& run, std::span<const ValueId> weights) {
    std::vector<int32_t> out;
    for (const ValueId weight : weights) {
      int32_t path = kNoId;
      for (const Taker& use : run.TakersOf(weight)) {
        const CallKind kind = run.calls[use.call].kind;
        if (kind == CallKind::kModule || kind == CallKind::kUpdate) path = run.calls[use.call].path;
        if (kind == CallKind::kUpdate) break;  // of a module that is shared it knows the first
      }
      if (path != kNoId && std::find(out.begin(), out.end(), path) == out.end())
        out.push_back(path);
    }
    return out;
  };
  Holders holders{.mine = paths_of(t, mine), .others = paths_of(g, others)};
  if (holders.mine.size() != mine.size() || holders.others.size() != others.size()) return;
  const bool known = std::any_of(holders_.begin(), holders_.end(), [&](const Holders& each) {
    return each.mine == holders.mine && each.others == holders.others;
  });
  if (!known) holders_.push_back(std::move(holders));
}

// What is recorded of the parameters of modules that hold pieces of weights: gradients, moments, and
// what a step makes of them; the first record of each module belongs to the first of the others.
void Relations::RelateHolders() {
  if (holders_.empty()) return;
  using Roles = std::map<std::string, std::vector<ValueId>>;
  using ByPath = std::unordered_map<int32_t, std::vector<CallId>>;
  const auto by_path = [](const Graph& run) {
    ByPath out;
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      const Call& call = run.calls[id];
      if (call.kind == CallKind::kUpdate || call.kind == CallKind::kGradients)
        out[call.path].push_back(id);
    }
    return out;
  };
  const auto roles_of = [](const Graph& run, ByPath* calls, const std::vector<int32_t>& paths) {
    std::vector<Roles> out;  // of each path
    for (const int32_t path : paths) {
      Roles roles;
      for (const CallId id : (*calls)[path]) {
        const Call& call = run.calls[id];
        const bool update = call.kind == CallKind::kUpdate;
        const Record& record = run.dump.records[call.record];
        for (const bool made : {false, true}) {
          for (const Port& port : made ? run.Makes(id) : run.Takes(id)) {
            const Leaf& leaf = run.dump.leaves[port.leaf];
            std::string role(update ? LeafPlace(leaf, record) : LeafPath(leaf, record));
            if (const size_t at = role.find(call.parameter); update && at != std::string::npos)
              role.replace(at, call.parameter.rfind('.') + 1,
                           "");  // keeps the parameter's own name
            roles[std::string(made ? ">" : "<") + std::string(update ? record.api.view() : "") +
                  role]
                .push_back(port.value);
          }
        }
      }
      out.push_back(std::move(roles));
    }
    return out;
  };
  ByPath my_calls = by_path(t), other_calls = by_path(g);
  for (const Holders& each : holders_) {
    const std::vector<Roles> mine = roles_of(t, &my_calls, each.mine),
                             others = roles_of(g, &other_calls, each.others);
    const auto at = [](const std::vector<Roles>& all, const std::string& role, size_t i) {
      std::vector<ValueId> out;
      for (const Roles& roles : all) {
        const auto found = roles.find(role);
        if (found != roles.end() && i < found->second.size()) out.push_back(found->second[i]);
      }
      return out.size() == all.size() ? out : std::vector<ValueId>();
    };
    for (const auto& [role, values] : mine[0]) {
      for (size_t i = 0; i < values.size(); ++i)
        RelateParts(at(mine, role, i), at(others, role, i), 0, Proof::kPieceOfWeight);
    }
  }
}

double Relations::RelateParts(std::span<const ValueId> mine, std::span<const ValueId> others,
                              double bound, Proof proof) {
  if (mine.empty() || others.empty() || (mine.size() == 1 && others.size() == 1)) return kInfinity;
  double roundoff = 0, terms = 0;
  for (const ValueId v : mine) {
    if (!t.values[v].moments.known) return kInfinity;
    roundoff = std::max(roundoff, t.values[v].roundoff);
    terms = std::max(terms, Terms(v));
  }
  for (const ValueId w : others) {
    if (!g.values[w].moments.known) return kInfinity;
    roundoff = std::max(roundoff, g.values[w].roundoff);
  }
  bool proven = false;
  const double error = TogetherApart(mine, others, terms, &proven);
  // Moments alone do not tell rows that were dealt to as many parts.
  if (!proven && mine.size() == others.size()) return kInfinity;
  const auto size_of = [this](ValueId v) {
    return std::max(Rms(v), Terms(v)) * std::sqrt(static_cast<double>(t.values[v].moments.n));
  };
  if (!c.exact.empty() && error > 1e-12) return error;  // bits decide
  double squares = 0;
  for (const ValueId v : mine) squares += std::pow(size_of(v), 2);
  // The sum of parts says of each as much as its share in it: a large one hides a small one.
  std::vector<double> allowed;
  for (const ValueId v : mine) {
    double wrong = 0;
    const double own = bound > 0 ? bound
                                 : std::max(kOwnRoundings * roundoff,
                                            NotHiding(v, BoundOf(v).error, roundoff, &wrong));
    const double share =
        squares > 0 ? size_of(v) * std::sqrt(static_cast<double>(mine.size()) / squares) : 1;
    allowed.push_back(roundoff > 0 ? own * std::min(share, 1.0) : 1e-12);
    if (!(error <= allowed.back())) return error;
  }
  int32_t together = -1;
  if (log != nullptr &&
      !std::all_of(mine.begin(), mine.end(), [this](ValueId v) { return IsKnown(v); })) {
    together = static_cast<int32_t>(log->together.size());
    log->together.push_back({.target = {mine.begin(), mine.end()},
                             .golden = {others.begin(), others.end()},
                             .error = error,
                             .terms = terms});
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    const ValueId v = mine[i];
    if (!IsKnown(v)) {
      Set(v,
          {.strength = Strength::kNear,
           .proof = proof,
           .error = std::max(error, 4 * roundoff),
           .bound = allowed[i],
           .proven = proven},
          {}, together);
    }
    part_[v] = 1;
  }
  for (const ValueId w : others) covered_[w] = 1;
  return 0;
}

void Relations::RelateDivided(CallId call) {
  const std::vector<Group> groups = GroupsOf(call);
  if (groups.empty()) return;
  const auto known = [this](ValueId v) { return IsKnown(v); };
  for (const bool made : {false, true}) {
    for (const Port& port : made ? t.Makes(call) : t.Takes(call)) {
      const Value& like = t.values[port.value];
      double best = kInfinity;
      std::vector<ValueId> all;
      for (const Group& group : groups) {
        // One call may divide its argument into its results.
        const bool any = made && group.mine.size() == 1 && group.others.size() == 1;
        const std::vector<ValueId> mine = InSlot(t, group.mine, port.place, made, any, like);
        if (std::all_of(mine.begin(), mine.end(), known)) continue;
        const std::vector<ValueId> others = InSlot(g, group.others, port.place, made, any, like);
        best = std::min(best, RelateParts(mine, others, 0, Proof::kPartOfBatch));
        if (best == 0) break;
        all.insert(all.end(), mine.begin(), mine.end());
      }
      if (best == 0 || std::isinf(best)) continue;
      for (const ValueId v : all) {
        if (known(v) || !(best > kSurely * of(v).bound)) continue;
        wrong_[v] = best;
        Relation apart = of(v);  // together, not from its partner
        apart.proof = Proof::kNotFound;
        if (log != nullptr) Log(v, apart, {}, -1);
      }
    }
  }
}

bool Relations::IsMadeOfPadded(ValueId v) const {
  const CallId maker = t.values[v].maker;
  if (maker == kNoId || !Alike(maker)) return false;
  const std::vector<ValueId> inputs = t.InputsOf(v, false);
  return std::any_of(inputs.begin(), inputs.end(),
                     [this](ValueId u) { return of(u).proof == Proof::kPadded; }) &&
         std::all_of(inputs.begin(), inputs.end(),
                     [this](ValueId u) { return t.values[u].plain || IsKnown(u); });
}

// A batch that one run pads more than the other: a value has the rows of its partner, and zeros besides,
// which add nothing to its sums; or, if it is made of a padded value, what is computed of zeros: rows that
// are equal.
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

// Complex numbers where the golden has their real and imaginary parts side by side, or the other way. Of
// both a sketch has the same rows, if both were seen with them. Else a call that only changes the form of
// one argument keeps its pairs; of other calls the norm is no proof.
std::optional<Relation> Relations::AsPairs(ValueId v, ValueId w, double bound) const {
  const Value &a = t.values[v], &b = g.values[w];
  const Beside* beside = BesideOf(v, w);
  const bool by_bits = !c.exact.empty() || (c.mode == Mode::kChecksum && !c.tolerant) ||
                       (beside != nullptr && beside->by_repeats == RowVerdict::kDiffers);
  if (by_bits || a.plain || b.plain || b.unwritten || !MayBePairs(a, b, bound)) return std::nullopt;
  // The rows of the two were summed in other dtypes (kernels/sketch.h).
  double wrong = 0;
  const double coarse = std::max(a.roundoff, b.roundoff);
  const double own = std::max(4 * kDigits, a.roundoff == b.roundoff ? 0 : kOwnRoundings * coarse);
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
    const std::vector<ValueId> inputs = t.InputsOf(v, false);
    const bool views = maker == kNoId ? t.MovedFrom(v) != kNoId
                                      : t.calls[maker].facts->kind == OperationClass::kKeeps;
    if (!views || inputs.size() != 1 || IsComplex(t.values[inputs[0]]) == IsComplex(a) ||
        of(inputs[0]).golden != w || of(inputs[0]).strength < Strength::kNear ||
        of(inputs[0]).doubtful)
      return std::nullopt;
  }
  return r.error <= r.bound ? std::optional(r) : std::nullopt;
}

// The same of the golden's value at its place, of that of an argument, or of any with such a norm.
std::optional<Relation> Relations::AsAnyPairs(ValueId v, ValueId w, double bound) const {
  constexpr int kMostOfNorm = 64;  // values of nearly the same norm that are looked at
  const Value& value = t.values[v];
  const Moments& m = value.moments;
  if (!(IsComplex(value) || complex_there_) || !value.IsFloat() || !m.known || m.norm == 0 ||
      !std::isfinite(m.norm))
    return std::nullopt;
  if (w != kNoId) {
    if (auto there = AsPairs(v, w, bound)) return there;
  }
  for (const ValueId u : t.InputsOf(v, false)) {
    if (of(u).golden == kNoId) continue;
    if (auto there = AsPairs(v, of(u).golden, bound)) return there;
  }
  const auto of_size = by_norm_.find(IsComplex(value) ? 2 * m.n : m.n / 2);
  if (of_size == by_norm_.end()) return std::nullopt;
  std::optional<Relation> best;
  const double near = std::max(bound, 4 * kDigits);
  auto at = std::lower_bound(of_size->second.begin(), of_size->second.end(), m.norm * (1 - near),
                             [](const Norm& a, double norm) { return a.norm < norm; });
  for (int i = 0; i < kMostOfNorm && at != of_size->second.end(); ++i, ++at) {
    if (at->norm > m.norm * (1 + 2 * near)) break;
    const auto found = AsPairs(v, at->value, bound);
    if (found && found->proven && (!best || found->error < best->error)) best = found;
  }
  return best;
}

// polar(1, x) = cos(x) + i sin(x): what two runs make of one angle needs no sketch, which does not tell
// the two halves of one run from the pairs of the other.
void Relations::RelatePolar(CallId call) {
  if (t.calls[call].kind != CallKind::kOperation || !c.exact.empty()) return;
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
    roundoff = std::max(roundoff, value.roundoff);
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
    wrong_[mine[i]] = 0;
    part_[mine[i]] = 1;
  }
  for (const ValueId w : others) covered_[w] = 1;
  return true;
}

// A matrix that one run holds transposed: the weight of a Conv1D and that of the Linear layer in its place,
// and with it its gradient, the state of its optimizer and what the optimizer makes of them. Its moments are
// the golden's; the rows of which sketches tell are its columns.
//
// The weight of a call is the transpose of the golden's where they have the same elements, and all that the
// call makes of it is right: what a matrix in a wrong order gives is not.
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
    const auto found = by_elements_.find(ElementsKey(value.moments));
    if (found == by_elements_.end()) continue;
    const auto same = std::find_if(found->second.begin(), found->second.end(), [&](ValueId w) {
      return g.IsWeight(w) && g.values[w].maker == kNoId && AreTransposed(value, g.values[w]) &&
             SameElements(value.moments, g.values[w].moments);
    });
    if (same == found->second.end()) continue;
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
         apart->in_order > kSurely * std::max(r.bound, kOwnRoundings * t.values[v].roundoff);
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
      if (error <= std::max(bound, kOwnRoundings * t.values[v].roundoff))
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
  wrong_[v] = 0;
}

}  // namespace msprobe::compare::relations
