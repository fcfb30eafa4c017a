// What the relations of one step leave to the next step of the same rank: weights, and what an
// optimizer keeps, arrive there with the error with which they were left.
//
//   Carried carried;  // empty: the first step
//   const Relations first(comparison, target, golden, carried);
//   Carried for_the_next = LeaveBehind(first);
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "engine/compare/relations/values/moments.h"

namespace msprobe::compare::relations {

class Relations;

struct Carried {
  // A value of the target that a recorded call left.
  struct Left {
    uint64_t golden = 0;  // ContentKey of the golden value that it is; 0: a part of one
    double error = 0, bound = 0, terms = 0;  // Relation, Relations::Terms
    bool in_order = true;                    // false: the same rows in another order
  };
  // A weight that a step that nobody recorded moves.
  struct Unseen {
    double noise = 0;  // error of its gradient, relative to its terms
    Moments before;    // of the golden
  };
  std::unordered_map<uint64_t, Left> left;         // by ContentKey
  std::unordered_set<uint64_t> covered;            // of golden values: parts make them up together
  std::unordered_map<std::string, Unseen> unseen;  // by the golden's name in weights.json
  // Names of weights that calls of one run write, and code without records of the other, alike.
  std::unordered_set<std::string> elsewhere;
};

// Of the ranks of two runs. The steps of a rank are compared one after the other; ranks may be
// compared at once.
class CarriedByRank {
 public:
  std::shared_ptr<Carried> Of(int32_t rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Carried>& carried = of_rank_[rank];
    if (carried == nullptr) carried = std::make_shared<Carried>();
    return carried;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int32_t, std::shared_ptr<Carried>> of_rank_;
};

Carried LeaveBehind(const Relations& relations);

}  // namespace msprobe::compare::relations
