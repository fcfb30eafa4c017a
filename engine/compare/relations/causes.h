// The values that a walk from the results of a step has met, and of which others each was made.
//
//   Causes causes(graph.values.size());
//   causes.Put(7, std::vector<ValueId>{3, 5});
//   causes.Of(7);     // {3, 5}
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
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

// Which places of a list of values, up to millions, belong to something: a bit for each.
//
//   Places explained(values.size()), other(values.size());
//   explained.Add(7);
//   explained.Includes(other);   // true: nothing belongs to `other`
class Places {
 public:
  Places() = default;
  explicit Places(size_t count) : words_((count + 63) / 64) {}
  void Add(size_t place) { words_[place / 64] |= uint64_t{1} << place % 64; }
  size_t size() const {
    return std::transform_reduce(words_.begin(), words_.end(), size_t{0}, std::plus<>(),
                                 [](uint64_t word) { return std::popcount(word); });
  }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
  }
  // Of two of one list.
  bool Includes(const Places& other) const {
    return std::equal(words_.begin(), words_.end(), other.words_.begin(),
                      [](uint64_t mine, uint64_t others) { return (others & ~mine) == 0; });
  }
  bool Meets(const Places& other) const {
    return !std::equal(words_.begin(), words_.end(), other.words_.begin(),
                       [](uint64_t mine, uint64_t others) { return (others & mine) == 0; });
  }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace msprobe::compare::relations
