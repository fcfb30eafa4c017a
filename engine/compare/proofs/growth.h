// How far rounding may grow, as the checker of proofs has it: one law for all classes of
// operations, which allows no less than relations/error_model.cc.
//
//   const Growth growth(comparison, target, golden);
//   if (!(step.bound <= growth.Most(step, premises, noise))) Refuse("its bound is too wide");
#pragma once

#include <span>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/proofs.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare {

// A call adds at most so many roundings of its dtype.
inline constexpr double kRoundings = 16;
// An error of so many roots of the dtype's rounding is too large to prove anything.
inline constexpr double kJudgedRoots = 4;

class Growth {
 public:
  // Keeps references to its arguments.
  Growth(const Comparison& comparison, const relations::Graph& target,
         const relations::Graph& golden);

  // The widest bound of a value that a call made of these premises, or that code without records
  // made; relative to its terms. `noise`: the largest error of a near value so far. Of a value that
  // is not unknown: no wider than what can be judged.
  double Most(const relations::ProofStep& step, std::span<const relations::Premise> premises,
              double noise) const;
  // The widest bound of a value of which a premise is wrong: nothing of that error may be left.
  double MostBesideWrong(const relations::ProofStep& step,
                         std::span<const relations::Premise> premises, double wrong) const;
  // Whether the call only moves elements of values that are equal bit for bit.
  bool IsExact(const relations::ProofStep& step, std::span<const relations::Premise> premises,
               std::span<const relations::ProofStep> steps) const;
  // What a step that nobody recorded leaves of a weight whose gradient had this noise.
  double MostUnseen(const relations::ProofStep& step, double noise,
                    const relations::Moments& before) const;
  double coarsest() const { return coarsest_; }

 private:
  double SharedRounding(const relations::Value& value) const;
  double MostOfUpdate(const relations::ProofStep& step,
                      std::span<const relations::Premise> premises) const;
  double ScaleOf(const relations::Value& value) const;
  relations::CallId ForwardOf(relations::CallId call) const;
  double LargestExponent(relations::CallId forward) const;
  double ReachOfErrors(const relations::ProofStep& step,
                       std::span<const relations::Premise> premises) const;

  const Comparison& c_;
  const relations::Graph &t_, &g_;
  double coarsest_ = 0;  // rounding of a result of a run
};

}  // namespace msprobe::compare
