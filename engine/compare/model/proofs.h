// How the values of the target are known to be those of the golden, as relations/ proved it step by
// step: what `msprobe compare --why` prints, the page shows, and proofs/check.h checks.
//
//   const ProofStep& step = proofs.steps[proofs.values[proofs.of_leaf[7]].step];
//   step.strength;               // Strength::kNear
//   proofs.PremisesOf(step);     // what was known of the values that it was made of
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
  kItsRow,       // without moments: as its row was judged
  kSameNumbers,  // of a golden value anywhere with the same moments
  kNearNumbers,  // of one with nearly the same moments
  kMask,         // the same mask in another coding
  kPartOfBatch,  // together with other parts it is what the golden has whole, or the other way
  kPieceOfWeight,
  kReordered,   // its columns stand in another order, as those of what it was made of
  kTransposed,  // the golden holds the matrix transposed
  kPadded,      // it has the rows of the golden and equal ones besides, or the other way
  kPairs,       // complex numbers for the pairs of real ones of the golden, or the other way
  kPolar,    // of one angle: complex numbers of modulus 1 for cosines and sines, or the other way
  kIndex,    // by what is taken with it
  kBeganSo,  // a weight that the step began with
  kLeftSo,   // the step before left it with this error
  kMovedAlike,  // a weight that a step moved that nobody recorded
  kRepeats,     // repeats of the golden are as far from it
  kJoined,      // of no value: the error of all gradients together that an optimizer takes
};

// What a step used of a value.
struct Premise {
  int32_t value = -1;  // of the target; -1: the step says an error of several values
  int32_t step = -1;   // what was known of it, an index into Proofs::steps; -1: nothing yet
  double error = 0;    // relative to its terms
  double terms = 0;    // the size of what was added up to it
  double coarse = 0;   // the coarsest rounding on the way to it
  double wrong = 0;    // the error that rounding cannot explain
  double scaled = 0;   // of a number times its partner: how far it is from that
};

// What was found of one value, from what was known before. Values have the numbers that graph.h
// gives them.
struct ProofStep {
  Strength strength = Strength::kNone;
  Proof proof = Proof::kNotTried;
  bool proven = false;   // by sketches or elements; false: moments alone say so
  bool unknown = false;  // within what rounding explains, which is too much here to be a proof
  int32_t value = -1;    // of the target
  int32_t golden = -1;
  int32_t together = -1;  // index into Proofs::together; -1: it is about one value
  double error = 0;       // measured, relative to the terms of the value
  double bound = 0;       // what rounding explains
  double terms = 0;       // as they were known then
  double wrong = 0;       // the error that rounding cannot explain
  uint32_t first_premise = 0, premises = 0;
};

// Values that are together what others are together.
struct Together {
  std::vector<int32_t> target, golden;
  double error = 0;
  double terms = 0;  // the largest of those of the target
};

struct ValueProof {
  int32_t step = -1;  // the last one that changed what is known of it; -1: it was not looked at
  int32_t target_leaf = -1;  // index into Dump::leaves: where it is made, or else first taken
  double factor = 0;     // of one that is not related: so many times its partner's; 0: it is not
  bool exposed = false;  // not related, and nothing related stands between it and a result
};

// A step that does not hold: a mistake of this program.
struct RefusedStep {
  int32_t step = -1;
  std::string defect;  // in English: for us
};

struct Proofs {
  std::vector<ProofStep> steps;  // a step uses only those before it
  std::vector<Premise> premises;
  std::vector<Together> together;
  std::vector<ValueProof> values;
  std::vector<int32_t> golden_leaf;  // of each value of the golden, as ValueProof::target_leaf
  std::vector<int32_t> of_leaf;      // the value of each leaf of the target; -1: it has none
  std::vector<RefusedStep> refused;

  std::span<const Premise> PremisesOf(const ProofStep& step) const {
    return {premises.data() + step.first_premise, step.premises};
  }
};

}  // namespace msprobe::compare::relations
