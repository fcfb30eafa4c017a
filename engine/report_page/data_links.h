// Which call made each recorded input, of all inputs of a dump at once. Dumps have no names for
// tensors: equal numbers and shape are taken for the same tensor (compare/explain/dataflow.h).
//
//   const std::vector<int32_t> made_by = MakersOf(dump);
//   if (made_by[leaf] >= 0) Print(dump.records[made_by[leaf]].name);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::report_page {

// For each leaf the last record before its own with an output of the same numbers, an index into
// Dump::records; -1: none, or not known. A call of an API goes before a module, which only hands on
// what a call inside it made; for an output of a module, that call.
std::vector<int32_t> MakersOf(const Dump& dump);

// The inverse: for each record the records that took one of its outputs, in their order.
class Takers {
 public:
  Takers(const Dump& dump, std::span<const int32_t> made_by);
  std::span<const int32_t> Of(int32_t record) const {
    return {takers_.data() + begin_[record], begin_[record + 1] - begin_[record]};
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<int32_t> takers_;
};

}  // namespace msprobe::report_page
