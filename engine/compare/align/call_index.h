// Finds a record by api, call number and direction.
//
//   CallIndex index(dump);
//   int32_t record = index.Find("Functional.linear", 3, Direction::kBackward);   // -1: none
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::compare {

// Keeps a reference to the dump. When several records have the same name, the first one is found.
class CallIndex {
 public:
  explicit CallIndex(const Dump& dump);
  int32_t Find(std::string_view api, int64_t call, Direction direction) const;

 private:
  size_t Slot(std::string_view api, int64_t call, Direction direction) const;

  const Dump& dump_;
  std::vector<int32_t> slots_;  // a hash table with open addressing: record indices, -1: free; its
                                // size is a power of two, and at most half of it is used
};

}  // namespace msprobe::compare
