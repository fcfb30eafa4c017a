// What the checker of proofs computes of recorded values, apart from the code that proves.
//
//   const Figures figures(comparison, target, golden, before);
//   // 1e-7: relative to the larger of `terms` and size
//   figures.Between(7, 9, /*terms=*/1).in_order;
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/proofs.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare {

using relations::ValueId;

// How far a value of the target is from one of the golden.
struct Gap {
  double in_order = 0, rows = 0;  // as the elements stand; the rows in any order
  double moments = 0;             // by moments alone
  bool told = false;              // sketches or elements were compared
  bool vector = false;            // a sketch of one row
  bool compared = false;          // the elements
  bool in_place = false;          // of joined values: their order was compared, and is the same
};

// How far a value is from one of the golden that has fewer rows, or more.
struct Padding {
  double error = 0;    // infinity: the further rows are neither zeros nor equal
  bool zeros = false;  // both have equally many numbers besides zeros
};

// How far complex numbers are from pairs of real ones.
struct Paired {
  double error = 0;   // infinity: they cannot be
  bool told = false;  // sketches were compared
};

class Figures {
 public:
  // Keeps references to its arguments.
  Figures(const Comparison& comparison, const relations::Graph& target,
          const relations::Graph& golden, const relations::Carried& before);

  Gap Between(ValueId value, ValueId golden, double terms) const;
  // Of what several values are together. Infinity: they cannot be. `told`: sketches said so.
  double Between(const relations::Together& together, bool* told) const;
  double NumbersApart(const relations::Together& together) const;
  Padding PaddingOf(ValueId value, ValueId golden, double terms) const;
  static bool IsComplex(const relations::Value& value);
  Paired PairsOf(ValueId value, ValueId golden, double terms) const;
  // Of the sums of squares of several values. Infinity: some have no numbers.
  double SquaresApart(const relations::Together& together) const;
  // Whether the values are all that a call of a run, or two calls, make of an angle: complex
  // numbers of modulus 1, or cosines and sines.
  static bool IsCircle(const relations::Graph& run, std::span<const int32_t> values, ValueId angle);
  // Whether moments allow the same elements in another order.
  bool SameElements(ValueId value, ValueId golden) const;
  // Whether they are one mask in two codings.
  bool SameMask(ValueId value, ValueId golden) const;
  // Rows in which the two stand beside each other.
  std::span<const int32_t> RowsOf(ValueId value, ValueId golden) const;
  // Whether a call takes or makes both at one place.
  bool StandAtOnePlace(ValueId value, ValueId golden) const;
  // The most that may have been added up to a value, whatever its call is.
  double MostTerms(ValueId value) const { return most_terms_[value]; }

 private:
  std::vector<std::pair<ValueId, double>> GradientsBeside() const;
  void FindMostTerms(const relations::Carried& before);
  double TermsFrom(ValueId value) const;
  double SlopeOf(relations::CallId call) const;

  const Comparison& c_;
  const relations::Graph &t_, &g_;
  std::unordered_map<uint64_t, std::vector<int32_t>> rows_;
  std::vector<double> most_terms_;
};

}  // namespace msprobe::compare
