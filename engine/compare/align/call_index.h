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
  struct Slot {
    int32_t record = -1;  // -1: free
    uint32_t hash = 0;    // a part of it: another one needs no look at the record
  };
  size_t Place(std::string_view api, int64_t call, Direction direction, uint64_t hash) const;

  const Dump& dump_;
  // A hash table with open addressing; its size is a power of two, and at most half of it is used.
  std::vector<Slot> slots_;
};

}  // namespace msprobe::compare
