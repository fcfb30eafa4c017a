#include "engine/compare/proofs/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/proofs/figures.h"
#include "engine/compare/proofs/growth.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare {
namespace {

using relations::Call;
using relations::CallKind;
using relations::Graph;
using relations::kNoId;
using relations::Port;
using relations::Premise;
using relations::Proof;
using relations::Proofs;
using relations::ProofStep;
using relations::Strength;
using relations::Taker;
using relations::Value;

constexpr size_t kMostRefused = 100;
constexpr double kSurely = 8, kOfDouble = kRoundings * 0x1p-53;
constexpr double kOfPieces = 4 * 0x1p-22, kOfIntegers = 1e-12;

// Sums of doubles in another order.
bool Same(double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)) + 1e-12;
}
bool AtMost(double a, double b) { return a <= b * (1 + 1e-6) + 1e-15; }

// The words of a refusal; empty: the step holds.
using Defect = std::string;

class Checker {
 public:
  Checker(const Comparison& c, const Graph& target, const Graph& golden,
          const relations::Carried& before, Proofs* proofs)
      : c_(c),
        before_(before),
        proofs_(*proofs),
        t_(target),
        g_(golden),
        figures_(c, t_, g_, before),
        growth_(c, t_, g_),
        coarse_(t_.values.size(), 0),
        unrelated_bound_(t_.values.size(), 0) {
    for (const Value& value : g_.values) ++golden_of_size_[value.moments.n];
  }

  void CheckAll() {
    for (int32_t i = 0; i < static_cast<int32_t>(proofs_.steps.size()); ++i) {
      Defect defect = Premises(i);
      if (defect.empty() && proofs_.steps[i].value >= 0) defect = Kind(proofs_.steps[i]);
      if (!defect.empty() && proofs_.refused.size() < kMostRefused)
        proofs_.refused.push_back({.step = i, .defect = std::move(defect)});
      Learn(proofs_.steps[i]);
    }
  }

 private:
  std::span<const Premise> PremisesOf(const ProofStep& step) const {
    return proofs_.PremisesOf(step);
  }
  const ProofStep* StepOf(const Premise& premise) const {
    return premise.step < 0 ? nullptr : &proofs_.steps[premise.step];
  }
  bool IsKnown(const Premise& premise) const {
    const ProofStep* step = StepOf(premise);
    return step != nullptr && (step->strength >= Strength::kNear ||
                               (step->strength == Strength::kSame && step->proven));
  }
  bool IsKnownOrPlain(const Premise& premise) const {
    return IsKnown(premise) || t_.values[premise.value].plain;
  }
  const Premise* PremiseOf(const ProofStep& step, ValueId v) const {
    const auto premises = PremisesOf(step);
    const auto found = std::ranges::find(premises, v, &Premise::value);
    return found == premises.end() ? nullptr : &*found;
  }

  // What later steps may use of this one.
  void Learn(const ProofStep& step) {
    if (step.value < 0) return;
    coarse_[step.value] = std::max(coarse_[step.value], CoarseFrom(step));
    if (step.strength <= Strength::kSame)
      unrelated_bound_[step.value] = std::max(unrelated_bound_[step.value], step.bound);
    if (step.strength == Strength::kNear && !step.unknown)
      noise_ = std::max({noise_, step.error, coarse_[step.value]});
  }

  // The coarsest rounding on the way to a value, since its bits were equal.
  double CoarseFrom(const ProofStep& step) const {
    double coarse = t_.values[step.value].roundoff();
    if (step.strength == Strength::kEqual) return coarse;
    if (step.golden >= 0) coarse = std::max(coarse, g_.values[step.golden].roundoff());
    const Value& value = t_.values[step.value];
    if (value.maker == kNoId || t_.calls[value.maker].kind == CallKind::kGradients)
      return growth_.coarsest();
    for (const ValueId w : t_.InputsOf(step.value, /*saved=*/true))
      coarse = std::max({coarse, coarse_[w], t_.values[w].roundoff()});
    return coarse;
  }

  // They are earlier steps, of the values that this one was made of, and say what is used of them.
  Defect Premises(int32_t i) const {
    const ProofStep& step = proofs_.steps[i];
    for (const Premise& each : PremisesOf(step)) {
      if (each.step >= i) return "a premise is not known before it";
      const ProofStep* known = StepOf(each);
      if (known != nullptr && known->value != each.value) return "a premise is of another value";
      if (Defect defect = Numbers(each, known); !defect.empty()) return defect;
    }
    if (step.value < 0 || step.proof == Proof::kSameContent) return "";
    for (const ValueId w : t_.InputsOf(step.value, /*saved=*/true)) {
      if (PremiseOf(step, w) == nullptr) return "a value that it was made of is no premise";
    }
    return "";
  }

  Defect Numbers(const Premise& each, const ProofStep* known) const {
    if (each.value < 0) {  // of several values: no larger than the largest of them
      if (known == nullptr) return "nothing says the error of all gradients";
      double most = 0;
      for (const Premise& part : PremisesOf(*known)) {
        const double off = part.error * part.terms, rms = t_.values[part.value].moments.Rms();
        most = std::max(most, off > 0 ? off / rms : 0);  // of terms that cancel zero may be left
      }
      return AtMost(each.error, most) ? "" : "the error of all gradients is more than of each";
    }
    const Value& value = t_.values[each.value];
    const double coarse = std::max(coarse_[each.value], value.roundoff());
    if (!AtMost(each.coarse, coarse) &&
        !AtMost(each.coarse, known == nullptr ? 0 : CoarseFrom(*known)))
      return "a premise is said to be coarser than it is";
    if (!AtMost(each.terms, figures_.MostTerms(each.value)))
      return "a premise is said to be a sum of larger terms than it can be";
    double error = 0;
    if (known != nullptr && (known->strength == Strength::kNear || known->unknown))
      error = std::max(known->error, each.coarse);
    else if (known != nullptr && known->strength != Strength::kEqual)
      error = unrelated_bound_[each.value];
    if (!AtMost(each.error, error)) return "a premise is said to have a larger error than it has";
    if (known != nullptr && known->strength == Strength::kNone && each.wrong < known->wrong)
      return "a premise is wrong by more than is said";
    return "";
  }

  Defect Kind(const ProofStep& step) const {
    const bool placed = step.golden >= 0;
    switch (step.proof) {
      case Proof::kSameContent:
        return placed ? SameContent(step) : "it is equal to nothing";
      case Proof::kConstant:
      case Proof::kNotRecorded:
        return Constant(step);
      case Proof::kItsRow:
        return placed ? ItsRow(step) : "it has no row";
      case Proof::kPartner:
      case Proof::kBeganSo:
      case Proof::kMovedAlike:
      case Proof::kSameNumbers:
      case Proof::kNearNumbers:
        return placed ? ByNumbers(step) : "it is near nothing";
      case Proof::kMask:
        return placed && figures_.SameMask(step.value, step.golden) ? "" : "the masks are others";
      case Proof::kPartOfBatch:
      case Proof::kPieceOfWeight:
        return step.together >= 0 ? Parts(step) : "nothing says what it is a part of";
      case Proof::kReordered:
        return placed ? Reordered(step) : "it has the elements of nothing";
      case Proof::kTransposed:
        return placed ? Transposed(step) : "it is the transpose of nothing";
      case Proof::kPadded:
        return placed ? Padded(step) : "it is padded to nothing";
      case Proof::kPairs:
        return placed ? Pairs(step) : "it has the pairs of nothing";
      case Proof::kPolar:
        return step.together >= 0 ? Polar(step) : "nothing says what it is beside";
      case Proof::kIndex:
        return placed ? Index(step) : "it names rows of nothing";
      case Proof::kLeftSo:
        return LeftSo(step);
      case Proof::kRepeats:
        return placed ? Repeats(step) : "it has no repeats";
      default:
        return step.strength == Strength::kNone ? "" : "nothing proves it";
    }
  }

  bool SameBits(ValueId v, ValueId w) const {
    if (t_.values[v].content < 0 || t_.values[v].content != g_.values[w].content) return false;
    return std::ranges::none_of(figures_.RowsOf(v, w), [&](int32_t row) {
      const kernels::Diff* diff = c_.DiffOf(row);
      return diff != nullptr && (diff->euclidean > 0 || diff->nonfinite_mismatch > 0);
    });
  }

  Defect SameContent(const ProofStep& step) const {
    if (step.strength != Strength::kEqual || t_.values[step.value].plain)
      return "a constant is no content";
    return SameBits(step.value, step.golden) ? "" : "the contents are others";
  }

  Defect Constant(const ProofStep& step) const {
    const Value& a = t_.values[step.value];
    if (step.proof == Proof::kConstant && !a.plain) return "it is no constant";
    const Value* b = step.golden >= 0 ? &g_.values[step.golden] : nullptr;
    const bool told = b != nullptr && a.moments.known && b->moments.known;
    if (step.strength == Strength::kEqual) {
      const bool unwritten = a.unwritten || (b != nullptr && b->unwritten);
      return !told || unwritten || SameBits(step.value, step.golden) ? "" : "it has other bits";
    }
    if (step.strength != Strength::kNear) return "";
    const bool open = !told && step.proof == Proof::kNotRecorded && !t_.dump.ranks.empty() &&
                      !g_.dump.ranks.empty();
    if (!told && !open) return "nothing tells how near it is";
    const double own = kRoundings * std::max(a.roundoff(), b == nullptr ? 0 : b->roundoff());
    if (!AtMost(step.bound, std::max(growth_.Most(step, PremisesOf(step), noise_), own)))
      return "its bound is wider than rounding";
    if (open) return AtMost(step.error, step.bound) ? "" : "it is off by more than its bound";
    if (!a.IsFloat() && !b->IsFloat())
      return figures_.SameElements(step.value, step.golden) ? "" : "it is another number";
    return Measured(step, figures_.Between(step.value, step.golden, step.terms).in_order);
  }

  // The error is what is measured again, and within the bound.
  static Defect Measured(const ProofStep& step, double error) {
    if (!Same(step.error, error))
      return fmt::format("it is off by {:.3g}, not {:.3g}", error, step.error);
    return AtMost(step.error, step.bound) ? "" : "it is off by more than its bound";
  }

  Defect ItsRow(const ProofStep& step) const {
    const auto rows = figures_.RowsOf(step.value, step.golden);
    const auto has = [&](RowVerdict verdict) {
      return std::ranges::any_of(rows,
                                 [&](int32_t row) { return c_.measures[row].verdict == verdict; });
    };
    if (step.strength == Strength::kNone) return "";
    if (t_.values[step.value].moments.known && g_.values[step.golden].moments.known)
      return "its moments tell more than its row";
    if (step.strength == Strength::kEqual && !SameBits(step.value, step.golden))
      return "it has other bits";
    return has(RowVerdict::kEqual) || has(RowVerdict::kNoise) ? ""
                                                              : "its row was judged differently";
  }

  Defect ByNumbers(const ProofStep& step) const {
    const Value &a = t_.values[step.value], &b = g_.values[step.golden];
    if (!a.moments.known || !b.moments.known)
      return step.strength == Strength::kNone ? "" : "nothing tells how near it is";
    const bool elsewhere = step.proof == Proof::kSameNumbers || step.proof == Proof::kNearNumbers;
    if (!elsewhere && !figures_.StandAtOnePlace(step.value, step.golden))
      return "they stand at no place together";
    const Gap gap = figures_.Between(step.value, step.golden, step.terms);
    if (step.strength == Strength::kNone) return Unrelated(step, gap);
    if (step.strength == Strength::kEqual) return "numbers do not tell that bits are equal";
    if (BitsDecide(step)) return "bits decide here";
    if (step.proven && !gap.told && !gap.compared) return "moments alone prove nothing";
    if (elsewhere && !step.proven && a.moments.n != 1 && !t_.SketchesOf(step.value).empty())
      return "what stands elsewhere must be proven by a sketch";
    if (step.proof == Proof::kNearNumbers && !step.proven && IsChance(step))
      return "its moments may agree by chance";
    if (step.proof == Proof::kBeganSo && !t_.IsWeight(step.value)) return "it is no weight";
    if (!a.IsFloat() || !b.IsFloat()) return Integers(step, gap);
    return Floats(step, gap);
  }

  // Whether values with other bits are other ones, however near.
  bool BitsDecide(const ProofStep& step) const {
    if (!t_.values[step.value].has_digest || !g_.values[step.golden].has_digest) return false;
    const bool checksums = c_.mode == Mode::kChecksum && !c_.tolerant;
    return !c_.exact.empty() || checksums ||
           std::ranges::any_of(figures_.RowsOf(step.value, step.golden), [&](int32_t row) {
             return !c_.by_repeats.empty() && c_.by_repeats[row] == RowVerdict::kDiffers;
           });
  }

  bool IsChance(const ProofStep& step) const {
    const int64_t n = t_.values[step.value].moments.n;
    const double agree = -static_cast<double>(std::min<int64_t>(4, n)) * std::log10(step.bound);
    const auto found = golden_of_size_.find(n);
    return found == golden_of_size_.end() || agree < 3;
  }

  // What is off by far more than its bound stays wrong, and so does what is made of it.
  Defect Unrelated(const ProofStep& step, const Gap& gap) const {
    const bool floats = t_.values[step.value].IsFloat() && g_.values[step.golden].IsFloat();
    // What stands in another order is as far away as its rows are.
    const double apart = kSurely * gap.rows <= gap.in_order ? gap.rows : gap.in_order;
    const bool far =
        floats && !BitsDecide(step) && std::isfinite(apart) && apart > kSurely * step.bound;
    if (step.proof == Proof::kPartner && far && !AtMost(apart, step.wrong))
      return fmt::format("it is off by {:.3g}, and not said to be wrong", apart);
    double inherited = 0;
    for (const Premise& each : PremisesOf(step)) inherited = std::max(inherited, each.wrong);
    return inherited > 0 && step.wrong == 0
               ? "it is made of a wrong value, and not said to be wrong"
               : "";
  }

  Defect Integers(const ProofStep& step, const Gap& gap) const {
    const bool rows = !gap.told || gap.vector || gap.rows <= kOfDouble;
    if (!figures_.SameElements(step.value, step.golden) || !rows) return "they are other numbers";
    const bool cast = t_.values[step.value].dtype != g_.values[step.golden].dtype;
    return (step.strength == Strength::kNear) == (cast || gap.in_place) ? ""
                                                                        : "integers do not round";
  }

  Defect Floats(const ProofStep& step, const Gap& gap) const {
    const Value &a = t_.values[step.value], &b = g_.values[step.golden];
    const auto premises = PremisesOf(step);
    const bool cast = a.dtype.dtype() != b.dtype.dtype();
    const double own = kRoundings * std::max(a.roundoff(), b.roundoff());
    double most = growth_.Most(step, premises, noise_);
    if (step.proof == Proof::kMovedAlike) {
      const auto moved = MovedOf(step.value);
      if (moved == nullptr) return "nothing is known of how it moved";
      most = growth_.MostUnseen(step, moved->noise, moved->before);
    }
    if (cast) most = std::max(most, own);
    if (!AtMost(step.bound, most))
      return fmt::format("rounding explains {:.3g}, not {:.3g}", most, step.bound);
    double wrong = 0;
    for (const Premise& each : premises) wrong = std::max(wrong, each.wrong);
    if (wrong > 0 && !AtMost(step.bound, growth_.MostBesideWrong(step, premises, wrong)))
      return "its bound hides the error of what it is made of";
    if (step.strength == Strength::kSame) {
      const bool rows = gap.told ? gap.rows <= std::max(step.bound, kOfDouble) &&
                                       kSurely * gap.rows <= gap.in_order
                                 : figures_.SameElements(step.value, step.golden);
      return rows ? "" : "they are other elements";
    }
    const bool told = a.has_digest && b.has_digest;
    if (!cast && growth_.IsExact(step, premises, proofs_.steps) && (told || gap.in_order != 0))
      return "nothing explains other bits";
    return Measured(step, gap.in_order);
  }

  const relations::Carried::Unseen* MovedOf(ValueId v) const {
    for (const auto& [weight, name] : t_.NamedWeights()) {
      const auto found = before_.unseen.find(name);
      if (weight == v && found != before_.unseen.end()) return &found->second;
    }
    return nullptr;
  }

  Defect Parts(const ProofStep& step) const {
    const relations::Together& all = proofs_.together[step.together];
    if (std::ranges::find(all.target, step.value) == all.target.end()) return "it is none of them";
    if (all.target.empty() || all.golden.empty() || all.target.size() + all.golden.size() < 3)
      return "one value is no part of another one";
    double roundoff = 0, terms = 0, squares = 0;
    for (const ValueId v : all.target) {
      roundoff = std::max(roundoff, t_.values[v].roundoff());
      terms = std::max(terms, figures_.MostTerms(v));
    }
    for (const ValueId w : all.golden) roundoff = std::max(roundoff, g_.values[w].roundoff());
    if (!AtMost(all.terms, terms)) return "they are said to be sums of larger terms";
    bool told = false;
    const double error = figures_.Between(all, &told);
    if (!Same(error, all.error) || told != step.proven)
      return fmt::format("together they are off by {:.3g}, not {:.3g}", error, all.error);
    if (!told && all.target.size() == all.golden.size())
      return "moments do not tell parts of as many parts";
    if (!AtMost(error, step.bound) || (!c_.exact.empty() && error > kOfIntegers))
      return "together they are off by more than the bound";
    if (roundoff == 0) return AtMost(step.bound, kOfIntegers) ? "" : "integers do not round";
    const auto size_of = [&](ValueId v, double least) {
      return std::max(t_.values[v].moments.Rms(), least) *
             std::sqrt(static_cast<double>(t_.values[v].moments.n));
    };
    const double mine = size_of(step.value, step.terms);
    for (const ValueId v : all.target) squares += v == step.value ? 0 : std::pow(size_of(v, 0), 2);
    const double share =
        mine * std::sqrt(static_cast<double>(all.target.size()) / (squares + mine * mine));
    double most = std::max(kRoundings * roundoff, growth_.Most(step, PremisesOf(step), noise_));
    if (step.proof == Proof::kPieceOfWeight) most = std::max(most, kOfPieces);
    const bool hidden = step.unknown;  // by a larger part: nothing is said of its share
    return AtMost(step.bound, mine > 0 && !hidden ? most * std::min(share, 1.0) : most)
               ? ""
               : "its bound is wider than rounding, or than its share";
  }

  Defect Reordered(const ProofStep& step) const {
    const Value& value = t_.values[step.value];
    if (!figures_.SameElements(step.value, step.golden)) return "they are other elements";
    if (value.maker == kNoId) {
      const ValueId from = t_.MovedFrom(step.value), there = g_.MovedFrom(step.golden);
      const Premise* moved = from == kNoId ? nullptr : PremiseOf(step, from);
      return there != kNoId && moved != nullptr && IsKnown(*moved) ? "" : "nothing was moved";
    }
    bool turned = false;
    for (const ValueId w : t_.InputsOf(step.value, false)) {
      const Premise* each = PremiseOf(step, w);
      if (!IsKnownOrPlain(*each)) return "it is made of what is not related";
      const ProofStep* known = StepOf(*each);
      turned |= known != nullptr && known->strength == Strength::kSame;
    }
    return turned ? "" : "nothing that it is made of stands in another order";
  }

  Defect Transposed(const ProofStep& step) const {
    const auto a = t_.values[step.value].shape.extents(),
               b = g_.values[step.golden].shape.extents();
    if (a.size() != 2 || b.size() != 2 || a[0] != b[1] || a[1] != b[0])
      return "the shapes are not transposed";
    const Value& value = t_.values[step.value];
    if (!t_.IsWeight(step.value) || value.maker != kNoId) {
      const bool beside = std::ranges::any_of(PremisesOf(step), [&](const Premise& each) {
        const ProofStep* known = each.value < 0 ? nullptr : StepOf(each);
        return known != nullptr &&
               (known->proof == Proof::kTransposed || known->proof == Proof::kLeftSo);
      });
      if (!beside) return "nothing beside it is transposed";
      const double most =
          std::max(growth_.Most(step, PremisesOf(step), noise_), kRoundings * value.roundoff());
      const double error = figures_.Between(step.value, step.golden, step.terms).moments;
      if (!Same(error, step.error)) return "it is off by another number";
      return AtMost(error, most) ? "" : "it is off by more than rounding";
    }
    if (!figures_.SameElements(step.value, step.golden)) return "they are other elements";
    const bool right = std::ranges::any_of(t_.TakersOf(step.value), [&](const Taker& use) {
      const auto makes = t_.Makes(use.call);
      return t_.calls[use.call].IsForward() && !makes.empty() &&
             std::ranges::all_of(makes, [&](const Port& port) {
               const Premise* made = PremiseOf(step, port.value);
               return made != nullptr && IsKnown(*made);
             });
    });
    return right ? "" : "no call makes something right of it";
  }

  // The further rows are zeros, or equal and made of a padded value.
  Defect Padded(const ProofStep& step) const {
    const Value &a = t_.values[step.value], &b = g_.values[step.golden];
    if (a.dtype.dtype() != b.dtype.dtype() || a.moments.n == b.moments.n)
      return "none of them is longer";
    if (!figures_.StandAtOnePlace(step.value, step.golden))
      return "they stand at no place together";
    const Padding padding = figures_.PaddingOf(step.value, step.golden, step.terms);
    if (!padding.zeros) {
      bool padded = false;
      for (const ValueId w : t_.InputsOf(step.value, false)) {
        const Premise* each = PremiseOf(step, w);
        if (!IsKnownOrPlain(*each)) return "it is made of what is not related";
        const ProofStep* known = StepOf(*each);
        padded |= known != nullptr && known->proof == Proof::kPadded;
      }
      if (!padded) return "nothing that it is made of is padded";
    }
    const double most = std::max(growth_.Most(step, PremisesOf(step), noise_), kOfPieces);
    if (!AtMost(step.bound, std::max(most, kRoundings * a.roundoff())))
      return "its bound is wider than rounding";
    return Measured(step, padding.error);
  }

  // Numbers whose form alone is another one: a sketch says so, or the one argument of what made
  // them.
  Defect Pairs(const ProofStep& step) const {
    const Value &a = t_.values[step.value], &b = g_.values[step.golden];
    if (!c_.exact.empty() || BitsDecide(step)) return "bits decide here";
    if (a.plain || b.plain) return "a constant has no pairs";
    const Paired paired = figures_.PairsOf(step.value, step.golden, step.terms);
    if (paired.told != step.proven) return "sketches were read in another way";
    if (!paired.told) {
      const auto inputs = t_.InputsOf(step.value, false);
      const bool moves = a.maker == kNoId ? t_.MovedFrom(step.value) != kNoId
                                          : t_.calls[a.maker].facts->kind == OperationClass::kKeeps;
      const bool views = moves && inputs.size() == 1 &&
                         Figures::IsComplex(t_.values[*inputs.begin()]) != Figures::IsComplex(a);
      const ProofStep* known = views ? StepOf(*PremiseOf(step, *inputs.begin())) : nullptr;
      if (known == nullptr || known->strength < Strength::kNear || known->golden != step.golden)
        return "it is no view of pairs that are the golden's";
    }
    return Measured(step, paired.error, OwnOfForm(step, std::max(a.roundoff(), b.roundoff())));
  }

  // cos(x)^2 + sin(x)^2 = 1: of one angle one run makes the two, and the other one complex numbers.
  Defect Polar(const ProofStep& step) const {
    const relations::Together& all = proofs_.together[step.together];
    const bool turned = all.target.size() == 1 && all.golden.size() == 2;
    if (!turned && (all.target.size() != 2 || all.golden.size() != 1))
      return "it is not one value beside two";
    if (std::ranges::find(all.target, step.value) == all.target.end()) return "it is none of them";
    if (!c_.exact.empty()) return "bits decide here";
    const bool of_one_angle = std::ranges::any_of(PremisesOf(step), [&](const Premise& each) {
      const ProofStep* known = each.value < 0 ? nullptr : StepOf(each);
      return known != nullptr && known->golden >= 0 && IsKnown(each) &&
             figures_.IsCircle(t_, all.target, each.value) &&
             figures_.IsCircle(g_, all.golden, known->golden);
    });
    if (!of_one_angle) return "they are not made of one angle";
    double roundoff = 0;
    for (const ValueId v : all.target) roundoff = std::max(roundoff, t_.values[v].roundoff());
    for (const ValueId w : all.golden) roundoff = std::max(roundoff, g_.values[w].roundoff());
    return Measured(step, figures_.SquaresApart(all), kRoundings * roundoff);
  }

  // What a change of form may add: the rows of sketches are summed in other dtypes.
  double OwnOfForm(const ProofStep& step, double roundoff) const {
    const bool cast = t_.values[step.value].roundoff() != g_.values[step.golden].roundoff();
    return std::max(kOfPieces, cast ? kRoundings * roundoff : 0);
  }

  // The error is what is measured again, and within a bound that is rounding, or `own`.
  Defect Measured(const ProofStep& step, double error, double own) const {
    double wrong = 0;
    for (const Premise& each : PremisesOf(step)) wrong = std::max(wrong, each.wrong);
    const double most = std::max(growth_.Most(step, PremisesOf(step), noise_), own);
    if (!AtMost(step.bound, most)) return "its bound is wider than rounding";
    if (wrong > 0 && !AtMost(step.bound, growth_.MostBesideWrong(step, PremisesOf(step), wrong)))
      return "its bound hides the error of what it is made of";
    return Measured(step, error);
  }

  Defect Index(const ProofStep& step) const {
    const Value &a = t_.values[step.value], &b = g_.values[step.golden];
    if (a.IsFloat() || a.dtype.dtype() != b.dtype.dtype() || a.shape.view() != b.shape.view())
      return "it is no index of that kind";
    for (const ValueId w : t_.InputsOf(step.value, false)) {
      if (!IsKnownOrPlain(*PremiseOf(step, w))) return "it is made of what is not related";
    }
    const auto turned = [&](const Premise& each) {
      const ProofStep* known = each.value < 0 ? nullptr : StepOf(each);
      return known != nullptr && known->strength == Strength::kSame;
    };
    return std::ranges::any_of(PremisesOf(step), turned) ? ""
                                                         : "nothing beside it is in another order";
  }

  Defect LeftSo(const ProofStep& step) const {
    for (const Taker& use : t_.TakersOf(step.value)) {
      const auto left = before_.left.find(ContentKey(t_.dump.leaves[t_.taken[use.port].leaf]));
      if (left == before_.left.end()) continue;
      if (step.error != left->second.error || step.bound != left->second.bound)
        return "the step before left another error";
      return (step.strength == Strength::kNear) == left->second.in_order
                 ? ""
                 : "it was left in another order";
    }
    return "the step before did not leave it";
  }

  Defect Repeats(const ProofStep& step) const {
    const bool noise =
        std::ranges::any_of(figures_.RowsOf(step.value, step.golden), [&](int32_t row) {
          return !c_.by_repeats.empty() && c_.by_repeats[row] == RowVerdict::kNoise;
        });
    return noise ? "" : "no repeat of the golden is as far from it";
  }

  const Comparison& c_;
  const relations::Carried& before_;
  Proofs& proofs_;
  const Graph &t_, &g_;
  const Figures figures_;
  const Growth growth_;
  std::vector<double> coarse_, unrelated_bound_;  // of the steps so far
  std::unordered_map<int64_t, int64_t> golden_of_size_;
  double noise_ = 0;
};

}  // namespace

void CheckProofs(const Comparison& comparison, const Graph& target, const Graph& golden,
                 const relations::Carried& before, Proofs* proofs) {
  Checker(comparison, target, golden, before, proofs).CheckAll();
}

}  // namespace msprobe::compare
