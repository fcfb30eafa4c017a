// Finds a record by api, call number and direction.
//
//   CallIndex index(dump);
//   int32_t record = index.Find("Functional.linear", 3, Direction::kBackward);   // -1: none
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::compare {

// Its texts are those of the dump. When several records have the same name, the first one is found.
class CallIndex {
 public:
  explicit CallIndex(const Dump& dump);
  int32_t Find(std::string_view api, int64_t call, Direction direction) const;

 private:
  // The calls of one API in one direction. Tools number them from 0, so a list that is looked at by
  // number is short, and calls that follow each other are neighbours in it. Few numbers that are
  // far apart are in a sorted list.
  struct Group {
    std::string_view api;
    Direction direction = Direction::kNone;
    uint64_t hash = 0;
    int64_t least = 0, most = 0;  // numbers of calls
    uint32_t count = 0;           // records
    bool by_number = false;       // whether the list is by_number_, from number `least` on
    size_t first = 0;             // in the list
    size_t size() const { return by_number ? static_cast<size_t>(most - least) + 1 : count; }
  };
  // The place of a group in slots_, or the free place where it belongs.
  size_t Place(std::string_view api, Direction direction, uint64_t hash) const;
  int32_t GroupOf(const Record& record);
  void Grow();
  void PlaceLists();

  std::vector<Group> groups_;
  // A hash table of groups with open addressing; its size is a power of two, and at most half of it
  // is used. -1: free.
  std::vector<int32_t> slots_;
  std::vector<int32_t> by_number_;                   // records; -1: no such call
  std::vector<std::pair<int64_t, int32_t>> sorted_;  // number and record
};

}  // namespace msprobe::compare
