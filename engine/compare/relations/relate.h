// Which values of the golden are the values of the target.
//
// A relation says how a value of the target is known to be one of the golden: the same bits, near
// by an error that rounding explains, or the same elements in another order. Each constructor
// proves it from relations of the values that a value was made of; a relation is only ever replaced
// by a stronger one, so the order in which values are looked at decides nothing. Values that no
// constructor relates are not wrong: whether they matter is decided by where they lead (expose.h).
//
//   const Relations relations(comparison, target, golden, carried);
//   relations.of(7).strength;    // Strength::kNear
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/compare/model/proofs.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/norm_index.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

struct Relation {
  Strength strength = Strength::kNone;
  Proof proof = Proof::kNotTried;
  ValueId golden = kNoId;
  double error = 0;  // measured, relative to the terms of the value
  double bound = 0;  // what rounding explains
  // Of a value that is not related: it is this number times that at its partner; 0: it is not.
  double factor = 0;
  // Nothing says that its elements stand where those of the golden value do: only moments agree, or
  // the step has put its rows into another order.
  bool doubtful = false;
  // A call of the step has put its rows into another order, as sketches show.
  bool moved = false;
  // The same elements and other bits; or something wrong went in.
  bool like = false;
  // Sketches say so, which tell the elements.
  bool proven = false;
  // Rounding explains its error, and explains so much here that this proves nothing.
  bool unknown = false;

  bool operator==(const Relation&) const = default;
};

// A weight or buffer, as the next step of both runs finds it: code without records may have written
// it.
struct NextWeight {
  std::string name;
  ValueId mine = kNoId, golden = kNoId;  // kNoId: no recorded call of this step made what it holds
  // The same bits, or within rounding of its dtype, or of what recorded calls made it of in one run
  // and code without records in the other one.
  bool agrees = false;
};

// Roundings of one call that nothing else is known of.
inline constexpr double kOwnRoundings = 16;
// That fewer elements are a number times others is chance.
inline constexpr int64_t kFewestScaled = 4;
// Of so many values it is asked whether they are near a value.
inline constexpr int kMostCandidates = 64;
// An error of so many bounds is no rounding.
inline constexpr double kSurely = 8;

class Relations {
 public:
  // Keeps references to its arguments. `log`: each step is written there, too; null: nobody asks.
  Relations(const Comparison& comparison, const Graph& target, const Graph& golden,
            const Carried& before, Proofs* log = nullptr);

  const Comparison& c;
  const Graph& t;
  const Graph& g;
  const Carried& carried;
  Proofs* const log;
  // Their operations have other names, arguments, and results that only one of them returns.
  const bool of_two_frameworks;
  std::vector<CallId> pair;     // of each call of the target; kNoId
  std::vector<CallId> partner;  // of each call of the golden

  const Relation& of(ValueId value) const { return relations_[value]; }
  bool IsRight(ValueId value) const { return of(value).strength >= Strength::kSame; }
  // The golden has it as a value of the target.
  bool Has(ValueId golden) const { return has_[golden] != 0; }
  // Whether a value of the target is the value w of the golden, by its relation or by its numbers.
  bool Fits(ValueId value, ValueId w) const;
  // The golden's leaf at the place of one of the target; kNoId.
  int32_t PartnerLeaf(int32_t target_leaf) const { return golden_leaf_[target_leaf]; }
  int32_t TargetLeaf(int32_t golden_leaf) const { return target_leaf_[golden_leaf]; }
  // Whether the target runs a call of the golden in code that a compiler made.
  bool IsCompiled(CallId golden) const { return compiled_[golden] != 0; }
  // The golden's value at the place of a port of a paired call; kNoId.
  ValueId AtPartner(const Port& port) const;
  // The target's value at the place of the golden's port; kNoId.
  ValueId AtTarget(int32_t golden_leaf) const;
  // Whether a call is made as its partner, so that what it makes follows from its arguments.
  bool Alike(CallId call) const;
  // Whether plain arguments of a paired call differ.
  bool OtherScalars(CallId call) const;
  bool OtherScalarsOf(const Record& record, const Record& golden) const;
  bool OtherScalar(int32_t target_leaf) const { return scalar_differs_[target_leaf] != 0; }
  bool OtherApi(CallId call) const;
  // The size of the terms that were added up to a value of the target: its rounding is relative to
  // it.
  double Terms(ValueId value) const;
  Apart ApartOf(ValueId value, ValueId w, double terms) const;
  // The number by which w must be multiplied to be the value, within the bound; 0: there is none,
  // or it is 1.
  double ErrorOfFactor(ValueId value, const Relation& r) const;
  double FactorOf(ValueId value, ValueId w, double bound) const;
  // The error of a value, relative to its terms.
  double RelativeErrorOf(ValueId value) const { return ErrorOf(value) * Ratio(value); }
  // Whether nothing stronger is looked for.
  bool IsKnown(ValueId value) const {
    const Relation& r = of(value);
    return r.strength >= Strength::kNear || (r.strength == Strength::kSame && r.proven);
  }
  // Whether a value that no call made may be the gradient of a weight.
  bool MayBeGradient(ValueId value) const;
  // Whether values of the target are together what values of the golden are together.
  bool IsPart(ValueId value) const { return part_[value] != 0; }
  // Whether what a call takes or makes of a parameter is what a call like it takes or makes of that
  // parameter in any pass of the golden.
  bool IsOfAnotherPass(CallId call, const Port& port) const;
  bool IsCovered(ValueId golden) const { return covered_[golden] != 0; }
  // From weights.json of the step after this one; empty if that was not recorded. Read when it is
  // asked for.
  const std::vector<NextWeight>& NextWeights() const;
  // Where the ranks of both sides were joined, nobody knows of some values whether they are the
  // same.
  bool IsOfTwoJoined() const { return !t.dump.ranks.empty() && !g.dump.ranks.empty(); }
  bool same_environment() const { return same_environment_; }
  double coarsest() const { return coarsest_; }  // rounding of a result of the target
  // Relates values that are together what others are together; the distance, 0: near.
  double RelateParts(std::span<const ValueId> mine, std::span<const ValueId> others, double bound,
                     Proof proof);

 private:
  struct Group {  // calls of one place that do the same work together
    std::vector<CallId> mine, others;
  };
  // What records a parameter: the operation, the module, the parameter's name.
  using OfParameter = std::tuple<std::string_view, int32_t, std::string_view>;
  static OfParameter ParameterOf(const Graph& run, CallId id) {
    return {run.ApiOf(id), run.calls[id].path, run.calls[id].parameter};
  }
  struct Place {  // a place of the program: all calls of one kind and name in one module
    std::vector<CallId> mine, others;
    // How many of the calls one pass makes, in each way in which the runs may divide the same work;
    // once it is asked for.
    std::optional<std::vector<size_t>> passes;
    std::optional<bool> alike;  // AreAlike, once it is asked for
    // Of each call of the target: when it was related, and when its groups were; and whether
    // something is not known that it takes or makes.
    std::vector<uint64_t> related, divided;
    std::vector<char> open;
  };
  struct Holders {  // paths of modules that hold the pieces of a weight
    std::vector<int32_t> mine, others;
  };
  bool AreDivided(const Place& place, size_t calls) const;
  bool AreAlike(Place* place) const;
  const std::vector<size_t>& PassesOf(Place* place) const;
  std::vector<Group> GroupsOf(CallId call);

  void PairCalls();
  void PairRecomputed();
  void PairGradients();
  void PairByPlace(CallId call, CallId golden);
  void Unpair(CallId call);
  void FindPlaces();
  void FindPieces();
  void KeepHolders(std::span<const ValueId> mine, std::span<const ValueId> others);
  void RelateHolders();
  // What the rows in which a value stands beside one of the golden say of the two.
  struct Beside {
    double error = -1;   // |a - b| of the elements; -1: they were not compared
    bool other = false;  // NaN or infinity on one side only
    RowVerdict by_repeats = RowVerdict::kUnknown;
    // Where no moments tell: how the row was judged by what was recorded of it, and how many
    // roundings apart it is.
    RowVerdict by_row = RowVerdict::kUnknown;
    double roundings = 0;
  };
  void IndexGolden();
  void FindArrivals();
  void FindBeside();
  void FindAgain();
  const Beside* BesideOf(ValueId value, ValueId w) const;
  std::optional<Relation> ByRow(ValueId value, ValueId w) const;
  bool SameBits(ValueId value, ValueId w) const;
  std::optional<Apart> BySketches(ValueId value, ValueId w, double size, double factor = 1) const;
  bool RelateAsLeft(ValueId value);
  void RelateAll();
  std::vector<CallId> Order() const;
  void RelateCall(CallId call);
  void Relate(ValueId value, ValueId w, bool weight);
  // `more`: values that the proof uses besides those that the value was made of.
  void Set(ValueId value, const Relation& relation, std::span<const ValueId> more = {},
           int32_t together = -1);
  int32_t LogStep(ValueId value, const Relation& relation, std::span<const ValueId> used,
                  int32_t together) const;
  void Log(ValueId value, const Relation& relation, std::span<const ValueId> more,
           int32_t together);
  void RelateConstant(ValueId value, ValueId w);
  Relation CompareWith(ValueId value, ValueId w, double bound, bool exact, Proof proof) const;
  // Of a value without numbers where both runs were joined: it is as right as what it is made of.
  bool IsOfWrong(ValueId value) const;  // it is made of something wrong
  Relation OfOpen(ValueId value, ValueId w, double bound) const;
  Relation Search(ValueId value, double bound, bool exact, bool wide = false) const;
  bool MayBeChance(int64_t n, double likely) const;
  std::vector<double> AllowedOfParts(std::span<const ValueId> mine, double error, double bound,
                                     double roundoff) const;
  double TogetherApart(std::span<const ValueId> mine, std::span<const ValueId> others, double terms,
                       bool* proven) const;
  bool MustMove(ValueId value) const;
  double SurelyWrong(ValueId value) const;
  bool IsNearInPlace(ValueId value, bool like, const Apart& apart, double bound) const;
  bool IsMoved(ValueId value, const Relation& relation) const;
  bool IsOfRowsInOrder(ValueId value) const;
  bool IsDoubtful(ValueId value, const Relation& relation) const;
  bool MayBePart(ValueId value) const;
  void RelateDivided(CallId call);
  void TakeApart(std::span<const ValueId> values, double error);
  void RelateIndices(CallId call);
  void RelateIndex(const Port& port, CallId call);
  void RelateTransposed(CallId call);
  bool ArrivesTransposed(ValueId value) const;
  void RelateUpdateOfTransposed(CallId call);
  void SetTransposed(ValueId value, ValueId w, double error, double bound,
                     std::span<const ValueId> more);
  bool IsMadeOfPadded(ValueId v) const;
  std::optional<Relation> AsPadded(ValueId v, ValueId w, double bound) const;
  std::optional<Relation> AsPairs(ValueId v, ValueId w, double bound) const;
  std::optional<Relation> AsAnyPairs(ValueId v, ValueId w, double bound) const;
  void RelatePolar(CallId call);
  bool RelateCircles(std::span<const ValueId> mine, std::span<const ValueId> others, ValueId angle);
  bool IsReordered(ValueId v, ValueId w) const;
  bool IsMadeReordered(ValueId v, ValueId w) const;
  bool Follows(ValueId value) const;
  bool FitsOrWrong(ValueId value, ValueId w) const;

  // The model of error.
  struct Bound {
    double error = 0;    // what proves that a value is near
    bool exact = false;  // nothing explains other bits
    double wide = 0;     // what rounding explains; where it is more than `error`, it proves nothing
  };
  Relation AsUnknown(ValueId value, ValueId w, double bound, const Relation& unrelated) const;
  double OwnOf(ValueId value, double roundoff, double exponent) const;
  double OwnOfCancelling(ValueId value) const;
  bool IsExact(ValueId value) const;
  bool IsOfUnrelated(ValueId value) const;  // something that is not related went into it
  Bound BoundOf(ValueId value) const;
  bool IsUnseen(ValueId value, const Inputs& inputs) const;
  bool IsOfAnyDtype(ValueId value) const;
  double ScaleOf(ValueId value) const;
  double BoundOfUpdate(ValueId value, const Call& call) const;
  double ErrorOfAllGradients(CallId update) const;
  struct Rates {  // of the optimizer's entry that was asked for last
    int32_t record = -1;
    double learning = 0, roundings = 0;  // the largest rate; see RatesOf
  };
  const Rates& RatesOf(int32_t update) const;
  double BoundOfUnseen(ValueId value, ValueId w, const Carried::Unseen& moved) const;
  double NotHiding(ValueId value, double bound, double roundoff, double* wrong) const;
  double ErrorOf(ValueId value) const;
  double MeasuredOrBound(ValueId value) const;
  struct Arguments {  // floats that a call takes
    int number = 0, tensors = 0;
    ValueId first = kNoId;
    double terms = 0, size = 0, ratio = 0;  // the largest
    double rows = 0;  // elements of the largest one for each element of the result
  };
  double TermsOf(ValueId value) const;
  double TermsOfForward(ValueId value, const OperationFacts& facts, const Arguments& of) const;
  double TermsOfBackward(ValueId value, const Call& call, const Arguments& of) const;
  double SizeOf(ValueId value) const;
  double TermsOfSoftmax(ValueId value, CallId forward, double arriving) const;
  double TermsOfUpdate(ValueId value, const Call& call) const;
  double NormalisedSize(CallId normalisation, int64_t weights) const;
  double SlopeOf(CallId normalisation) const;
  double SizeBeside(ValueId gradient) const;
  double TermsOfParameter(const Value& value, const Call& gradients) const;
  double CoarseOf(ValueId value) const;
  double Coarse(ValueId value) const;
  double Rms(ValueId value) const { return t.values[value].moments.Rms(); }
  double Ratio(ValueId value) const;
  double ExponentOf(CallId call) const;
  double ReachOf(ValueId value, CallId call) const;
  bool TakesTheSameBits(CallId call) const;
  void SettleTerms(ValueId value);
  void SettleCoarse(ValueId value);

  void Cover(std::span<const ValueId> golden);  // by values of the target together

  // Rounds: what cannot have changed is not related again.
  bool MayChange(ValueId value, uint64_t since) const;
  template <typename T>
  void Keep(T* place, T now, ValueId value) {
    if (*place == now) return;
    *place = now;
    changed_[value] = now_;
  }

  // What is done has a number, so that it is not done again before something has changed.
  uint64_t now_ = 0;
  std::vector<uint64_t> changed_;                       // of each value: when it did
  std::vector<uint64_t> related_taken_, related_made_;  // of each port: when its value was related
  struct TotalNorm {  // that was related last, when, and beside which value
    ValueId value = kNoId;
    int32_t round = -1;
    ValueId golden = kNoId;
    bool operator==(const TotalNorm&) const = default;
  } total_norm_;
  int32_t round_ = 0;
  uint64_t covered_now_ = 0;        // when a value of the golden was covered last
  mutable uint64_t noise_now_ = 0;  // when noise_ grew last
  std::vector<Relation> relations_;
  std::vector<double> wrong_;   // of each value the error that rounding cannot explain; 0
  std::vector<double> scaled_;  // and how far it is from a number times its partner, if it is that
  std::vector<double> terms_, coarse_;    // -1: not known yet
  mutable std::vector<int32_t> step_of_;  // of each value the last step of the log
  std::vector<char> has_, part_, covered_;
  std::vector<char> taken_;  // golden values that a value of the target is near
  std::vector<char>
      transposed_;  // weights that the golden holds transposed, and what belongs to them
  std::vector<char> compiled_;
  std::vector<int32_t> golden_leaf_, target_leaf_;  // the partner of each leaf
  std::vector<char> scalar_differs_;                // of each leaf of the target
  struct AtPlace {
    int32_t place = -1, index = -1;
  };
  std::vector<Place> places_;
  std::vector<Holders> holders_;
  std::map<OfParameter, Group> of_parameter_;  // gradients and updates
  std::vector<AtPlace> place_of_;              // of each call of the target
  NormIndex by_norm_;                          // of the golden
  HashedLists by_elements_;                    // of the golden
  struct Arrival {
    const Carried::Left* left = nullptr;
    const Carried::Unseen* unseen = nullptr;
    ValueId golden = kNoId;  // of `left`
  };
  std::unordered_map<ValueId, Arrival> arrivals_;  // what the step before knew of them
  std::unordered_map<uint64_t, Beside> beside_;
  double coarsest_ = 0;         // rounding of a result of a run
  CallId first_backward_ = 0;   // of the target; the number of its calls: there is none
  bool complex_there_ = false;  // the golden has complex numbers
  struct OfUpdate {             // of the optimizer's entry that was asked for last
    int32_t record = -1;
    double error = 0;
    int32_t step = -1;  // of the log
  };
  mutable OfUpdate all_gradients_;
  mutable Rates rates_;
  struct {  // of two entries of optimizers, whose calls have the same plain arguments
    int32_t record = -1, other = -1;
    bool differ = false;
  } mutable scalars_;
  // The last backward calls of modules, by their paths.
  mutable std::optional<std::unordered_map<int32_t, CallId>> backward_of_;
  // Of gradients that optimizers take, the size of the largest one of their module.
  mutable std::optional<std::unordered_map<ValueId, double>> beside_update_;
  mutable std::optional<std::vector<NextWeight>> next_weights_;
  mutable double noise_ = 0;  // the largest error of a related value so far
  bool same_environment_ = false;
};

}  // namespace msprobe::compare::relations
