// How a value of the target is known to be one of the golden, as relations/ proved it: what
// `msprobe compare --why` prints.
//
//   const ValueProof& proof = proofs.values[proofs.of_leaf[7]];
//   proof.strength;    // Strength::kNear
//   proof.premises;    // the values that it was made of
#pragma once

#include <cstdint>
#include <vector>

namespace msprobe::compare::relations {

enum class Strength : uint8_t {
  kNone,   // not related
  kSame,   // the same elements, perhaps in another order
  kNear,   // an error that rounding explains
  kEqual,  // the same bits
};

// The constructor that proved a relation.
enum class Proof : uint8_t {
  kNotTried,
  kNotFound,
  kSameContent,
  kConstant,
  kNotRecorded,  // one side has no numbers
  kPartner,      // near what its partner makes or takes
  kSameNumbers,  // of a golden value anywhere with the same moments
  kNearNumbers,  // of one with nearly the same moments
  kMask,         // the same mask in another coding
  kPartOfBatch,  // together with other parts it is what the golden has whole, or the other way
  kPieceOfWeight,
  kTransposed,  // the golden holds the matrix transposed
  kIndex,       // by what is taken with it
  kBeganSo,     // a weight that the step began with
  kLeftSo,      // the step before left it with this error
  kMovedAlike,  // a weight that a step moved that nobody recorded
  kRepeats,     // repeats of the golden are as far from it
};

struct ValueProof {
  Strength strength = Strength::kNone;
  Proof proof = Proof::kNotTried;
  // Indices into Dump::leaves: where the value is made, or else first taken, and the golden's; -1: none.
  int32_t target_leaf = -1, golden_leaf = -1;
  double error = 0;   // measured, relative to the terms of the value
  double bound = 0;   // what rounding explains
  double factor = 0;  // of one that is not related: so many times its partner's; 0: it is not
  bool exposed =
      false;  // not related, and no related value stands between it and a result of the step
  std::vector<int32_t> premises;  // what it was made of: indices into Proofs::values
};

struct Proofs {
  std::vector<ValueProof> values;
  std::vector<int32_t> of_leaf;  // the value of each leaf of the target; -1: it has none
};

}  // namespace msprobe::compare::relations
