// The values of a run by their numbers of elements and their norms: where values that rounding
// makes others are looked for.
//
//   NormIndex index;
//   index.Add(7, value);
//   index.Build();                                         // once, after the last value
//   for (const NormIndex::Item& each : index.Near(n, 0.999, 1.001)) Look(each.value);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

class NormIndex {
 public:
  struct Item {
    double high = 0, low = 0;  // as of its moments
    ValueId value = kNoId;
    std::optional<DType> dtype;
  };

  // A value with moments, whose norm is finite.
  void Add(ValueId id, const Value& value);
  void Build();
  // Those of n elements with norms of at least `least` and at most `most`, by their norms: the
  // first 64.
  std::span<const Item> Near(int64_t n, double least, double most) const;
  size_t CountOf(int64_t n) const;  // of n elements

 private:
  struct OfSize {
    std::vector<double> norms;  // apart from the items: they are searched
    std::vector<Item> items;
  };
  std::unordered_map<int64_t, OfSize> by_size_;
};

}  // namespace msprobe::compare::relations
