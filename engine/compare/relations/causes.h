// The values that a walk from the results of a step has met, and of which others each was made.
//
//   Causes causes(graph.values.size());
//   causes.Put(7, std::vector<ValueId>{3, 5});
//   causes.Of(7);     // {3, 5}
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

class Causes {
 public:
  // `values`: how many values the run has.
  explicit Causes(size_t values) : place_(values, kNoId) {}

  bool Has(ValueId value) const { return place_[value] != kNoId; }
  // Once for each value.
  void Put(ValueId value, std::span<const ValueId> causes) {
    place_[value] = static_cast<int32_t>(values_.size());
    values_.push_back(value);
    causes_.insert(causes_.end(), causes.begin(), causes.end());
    end_.push_back(causes_.size());
  }
  // Of a value that was met.
  std::span<const ValueId> Of(ValueId value) const {
    const int32_t place = place_[value];
    const size_t begin = place == 0 ? 0 : end_[place - 1];
    return {causes_.data() + begin, end_[place] - begin};
  }
  // In the order in which they were met.
  std::span<const ValueId> values() const { return values_; }
  void Clear() { *this = Causes(place_.size()); }

 private:
  std::vector<int32_t> place_;  // of each value of the run, in values_; kNoId: it was not met
  std::vector<ValueId> values_, causes_;
  std::vector<size_t> end_;  // in causes_, of each value that was met
};

}  // namespace msprobe::compare::relations
