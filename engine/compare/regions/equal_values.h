// Whether the other run has a value, too, in a call that is not the partner of the call that made it.
//
//   const EqualValues values(comparison, candidates);
//   values.IsOnBothSides(leaf, /*target=*/true, /*bits=*/false);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_ids.h"

namespace msprobe::compare {

class EqualValues {
 public:
  // `candidates`: for each pair whether its results are candidates: those that have no partner, or
  // another one than they should have.
  EqualValues(const Comparison& comparison, const std::vector<char>& candidates);

  // Whether the value of a leaf of the target (`target`) or of the golden is in the other run: the
  // same content in rows that agree, or a result of a candidate with the same bits or with numbers
  // that rounding explains. The shapes may differ, the number of elements may not. `bits`: equal
  // numbers are too little, because the value was only moved.
  bool IsOnBothSides(const Leaf& leaf, bool target, bool bits) const;

  // The same without rows that agree: a candidate of the other run returns the value. Thread-safe
  // with a different leaf each.
  bool HasCounterpart(const Leaf& leaf, bool target, bool bits) const;

 private:
  struct Candidate {
    double elements, norm;
    const Leaf* leaf;
    bool operator<(const Candidate& other) const {
      return elements != other.elements ? elements < other.elements : norm < other.norm;
    }
  };
  // What the rows say of the target's values, or of the golden's.
  void Collect(bool target, const std::vector<char>& candidates);
  bool Agree(const Leaf& target, const Leaf& golden) const;
  // Whether a candidate of the other run agrees with the numbers of the leaf.
  bool HasNearCandidate(const Leaf& leaf, bool target) const;

  const Comparison& c_;
  std::shared_ptr<const ContentIds> content_;
  ContentSet equal_[2], agreeing_[2], made_[2];  // of the target, of the golden
  std::vector<Candidate> candidates_[2];         // sorted
  // Of each leaf the answer of HasNearCandidate; kNotAsked: nobody has asked.
  enum class Answer : char { kNotAsked, kNo, kYes };
  mutable std::vector<Answer> near_[2];
};

}  // namespace msprobe::compare
