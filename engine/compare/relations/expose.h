// Which values of the target reach a result of the step, unrelated to the golden's, and where they
// begin.
//
// Sinks are what a step leaves behind: the gradients that optimizers take and what they make,
// memory that outlives the step, and where nothing is recorded backward the results that nobody
// takes. From a sink that is not right the walk goes backward to the wrong values that it was made
// of, and stops at related ones: what is wrong elsewhere, and reaches no sink, does not count. The
// frontier are the exposed values that were made of right ones.
//
//   const Exposure exposure(relations, left.Differences(comparison));
//   for (const Candidate& candidate : exposure.candidates) Name(candidate.call, candidate.cause);
#pragma once

#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/compare/model/precision_policies.h"
#include "engine/compare/relations/causes.h"
#include "engine/compare/relations/left_gradients.h"
#include "engine/compare/relations/memory.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

inline constexpr size_t kMostCallsBack = 512;  // that are asked in a row; bounds stack and time

enum class Cause : uint8_t {
  kAnotherResult,     // related arguments, and another result
  kMadeDifferently,   // another API or other plain arguments
  kAnotherInput,      // takes a value of the golden that its partner does not take
  kAnotherWeight,     // a module takes another parameter
  kMissing,           // the golden's call makes what the target takes unchanged
  kNowhere,           // a golden call makes of values that the target has what the target has not
  kOnlyHere,          // the golden has no such call
  kNoCallMadeIt,      // an argument that code without records made
  kGradientNotAdded,  // a sum of gradients lacks a part that the target has
  kWithoutGradient,   // takes a value without its gradient
  kWithGradient,      // takes a value with a gradient that the golden's does not carry
  kAnotherUpdate,     // a weight was another one when the step began
  kCoarser,           // computed in a coarser dtype than its partner
  kOtherPolicy,       // made in another dtype, under another precision policy than its partner
  kOtherIntegers,     // other exact values
  kLeftGradient,      // something else lay in .grad when the backward pass began
};

struct Candidate {
  CallId call = kNoId;    // of the target
  CallId golden = kNoId;  // of the golden
  ValueId value = kNoId;  // of the target, or of the golden where `call` is kNoId
  Cause cause = Cause::kAnotherResult;
  double order = 0;  // in the calls of the target
  bool sure = false;
  int64_t pass = -1;         // of kLeftGradient: the backward pass
  ValueId shown_by = kNoId;  // the exposed value of the target that led here
  ValueId another = kNoId;   // of kAnotherInput: which one; kNoId: the first that does not fit

  // The result has the golden's elements, in an order that no constructor explains.
  bool another_order = false;
  // The runs pass through its module and its partner's in another order; both results are there.
  bool other_pass = false;

  // How much speaks for it besides that it comes first.
  int Evidence() const;
};

class Exposure {
 public:
  // `left`: on what lay in .grad when a backward pass began the runs do not agree.
  Exposure(const Relations& relations, std::span<const LeftGradient> left);

  std::vector<Candidate> candidates;  // the first divergence in front
  // The candidates of the second look differ without effect on this step.
  bool without_effect = false;
  // Whether a call takes or makes v, which is another value of the golden, and gives it away.
  bool IsMisplaced(CallId call, ValueId v) const { return misplaced_.count({call, v}) > 0; }
  bool IsExposed(ValueId value) const { return exposed_.Has(value); }
  bool IsGoldenExposed(ValueId w) const { return exposed_golden_.Has(w); }

 private:
  struct Sink {
    CallId call = kNoId;
    ValueId value = kNoId;
    int32_t leaf = kNoId;
    bool update = false;  // made by an optimizer's step
    bool paired =
        false;  // counts where the golden has one, too: a number that is shown, what ranks receive
  };

  std::vector<Sink> SinksOf(const Graph& run) const;
  static bool FillsNewMemory(const Graph& run, CallId call);
  void AddGiven(const Graph& run, CallId call, std::vector<Sink>* out) const;
  // From the unlikeliest: as what code without records may have taken a value to make another one.
  enum class Lead : uint8_t { kNone, kChosen, kIndex, kBeside, kPart };
  static Lead LeadOf(const Value& part, const Value& whole);
  void FindSinks();
  void FindMemorySinks();
  bool IsWrittenElsewhere(ValueId weight) const;
  bool IsOfReorderedData(ValueId value) const;
  bool IsCounter(ValueId value) const;
  static bool IsNumbering(const Graph& run, ValueId value);
  bool IsReadAlike(const MemoryPair& memory) const;
  bool IsMovedByNoise(const Sink& sink) const;
  bool IsOfAnotherPass(const Sink& sink) const;
  bool IsOfReorderedUnits(ValueId value) const;
  bool HasOtherForm(const Sink& sink, ValueId w) const;
  void Misplace(CallId call, ValueId value);
  void FindLeft(std::span<const LeftGradient> left);
  std::optional<Candidate> LeftIn(ValueId value) const;
  int32_t FirstWrongGradient() const;
  double BeginOf(const LeftGradient& left) const;
  Candidate Outermost(Candidate candidate) const;
  Candidate FirstThatTakes(Candidate candidate) const;
  Candidate WhereMade(Candidate candidate) const;
  std::optional<Candidate> PutInAnotherOrder(CallId call, ValueId value) const;
  std::optional<Candidate> OrderedDifferently(CallId call, ValueId value);
  struct Loss {
    ValueId value = kNoId;
    CallId backward = kNoId;  // the first call of its pass
  };
  static std::vector<Loss> LossesOf(const Graph& run);
  void AddLosses();
  bool LossesTellMore() const;
  static std::vector<ValueId> InExposedPass(const Graph& run, const std::vector<Loss>& losses,
                                            const Causes& exposed);
  void Expose();
  template <typename Next>
  static void Spread(const std::vector<ValueId>& from, Next next, Causes* out);
  std::vector<ValueId> CausesOf(ValueId value);
  const std::vector<ValueId>& GradientsOfAll(int32_t record);
  bool IsScaledOnly(ValueId value, std::span<const ValueId> given) const;
  bool IsShuffled(ValueId value, std::span<const ValueId> beside) const;
  bool IsMiswired(ValueId value) const;
  std::vector<ValueId> GoldenCausesOf(ValueId value) const;
  bool IsState(ValueId value) const;
  std::vector<ValueId> Around(ValueId value);
  bool Ends(ValueId value) const;
  CallId TakerOf(ValueId value) const;
  bool Found(ValueId golden) const { return r_.Has(golden) || r_.g.values[golden].plain; }

  void NameFrontier();
  std::vector<Candidate> Frontier();
  bool TakesAnother(CallId call) const;
  bool TakesStale(CallId call) const;
  bool OnlyPairsUp(CallId call) const;
  Candidate Origin(CallId call, ValueId value, std::vector<CallId> seen);
  std::optional<Candidate> LeftAsItWas(CallId call, ValueId value, std::vector<CallId> seen);
  std::optional<Candidate> ConstantInstead(CallId call, ValueId x, ValueId w, ValueId value) const;
  CallId WhereTaken(CallId call, ValueId x) const;
  bool Errs(CallId call) const;
  bool MayBePositions(ValueId value) const;
  bool IsOfAnotherModule(const Candidate& found) const;
  std::optional<Candidate> WhoShouldMake(ValueId x, ValueId w, CallId call, ValueId value,
                                         const std::vector<CallId>& seen);
  std::optional<Candidate> Reshaped(CallId call, ValueId value) const;
  CallId MakerBetween(ValueId x, ValueId w, CallId call) const;
  bool StandsBetween(CallId call, ValueId w) const;
  bool HasAnotherOrder(CallId call, const Port& made) const;
  std::optional<Candidate> ComputedNumber(CallId call, ValueId value) const;
  std::optional<Candidate> Missing(std::vector<ValueId> todo, CallId call, ValueId taken) const;
  Candidate MissingFrom(ValueId w) const;
  Candidate MissingStep(CallId golden) const;
  std::optional<Candidate> Unrecorded(ValueId x, ValueId w, CallId call, ValueId value,
                                      const std::vector<CallId>& seen);
  Candidate Named(CallId call, ValueId value, Cause cause, bool sure = false) const;
  double OrderOf(CallId golden) const;
  ValueId ResultOf(CallId golden) const;

  struct Weighed {
    std::span<const Candidate> found;
    std::vector<Places> effects;  // of each: the contradictions that follow from it
    bool exchanges = false;       // the runs have several ranks
  };
  bool GivesWay(const Weighed& all, size_t i, bool made_of_it) const;
  std::vector<Candidate> Rank(std::vector<Candidate> found);
  bool IsProven(const Candidate& candidate) const;
  std::vector<ValueId> Contradictions() const;
  static Lists<ValueId> Reversed(const Causes& graph, size_t values);
  Places Explained(const Candidate& candidate, const Lists<ValueId>& of_target,
                   const Lists<ValueId>& of_golden, std::span<const ValueId> contradictions) const;
  Candidate WhereCut(const Candidate& candidate);
  Candidate FirstCut(bool with) const;

  bool SamePolicy() const;
  std::optional<Candidate> UnderOtherPolicy(CallId call) const;
  std::vector<Candidate> FirstBits(bool alike);
  std::optional<Candidate> OtherIntegers(CallId call);
  const std::set<std::pair<int64_t, int64_t>>& OtherSizes();
  bool AreOtherSizes(double a, double b);
  bool PassesOtherSizes(CallId call);
  static std::vector<double> Coarsest(const Graph& run);
  std::optional<Candidate> FinerBetweenCasts(CallId call) const;
  std::optional<Candidate> CastFor(CallId call) const;
  std::optional<Candidate> MadeOfCoarser(CallId call, const std::vector<double>& mine,
                                         const std::vector<double>& golden) const;
  void PreferInside();
  bool DiffersBySizes(CallId call);
  Candidate TakesAfterRows(CallId call, ValueId value, const Port& port, ValueId instead) const;
  void PreferAfterRows();
  ValueId ExposedOf(CallId call) const;
  void PreferBirth(bool alike);
  void DropGrowth();
  std::optional<Candidate> OtherSettings() const;
  std::optional<Candidate> BornHere(CallId call, bool alike);

  const Relations& r_;
  const bool modules_only_;
  const Policies policies_;
  std::vector<ValueId> losses_;  // with which backward passes of the target began
  std::vector<ValueId> bad_sinks_, bad_golden_;
  std::set<std::pair<CallId, ValueId>> misplaced_;
  std::vector<CallId> missing_steps_;
  std::unordered_map<ValueId, Candidate> left_;  // of gradients of parameters
  std::vector<std::pair<ValueId, ValueId>> other_losses_;
  std::optional<std::set<std::pair<int64_t, int64_t>>> other_sizes_;  // once they are asked for
  std::optional<std::vector<CallId>> orders_;  // that calls make of right values, once asked for
  struct Loose {                               // what is asked of each result, millions of times
    ValueId value = kNoId;
    CallId maker = kNoId;
    int32_t path = kNoId;        // of its maker
    bool backward = false;       // made by a backward call
    int dtype = kDTypeCount;     // or its number
    double top = 0, bottom = 0;  // between which all of its elements lie, and 0
  };
  std::vector<Loose> FindLoose() const;
  std::vector<ValueId> WholesOf(ValueId part, std::span<const Loose> from, int32_t path,
                                std::optional<bool> backward) const;
  std::optional<std::vector<Loose>> loose_;  // of wrong results, by their makers
  std::optional<Candidate> cut_, cut_with_;  // FirstCut without and with a gradient, once asked for
  std::unordered_map<int32_t, std::vector<ValueId>> gradients_of_;  // of an optimizer's record
  Causes exposed_, exposed_golden_;
};

}  // namespace msprobe::compare::relations
