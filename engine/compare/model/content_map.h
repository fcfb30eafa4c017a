// A map from 64-bit hashes, such as ContentKey, to numbers: a quarter of the time and of the memory
// of std::unordered_map for dumps of millions of values.
//
//   ContentMap index;
//   const int32_t number = index.Insert(key, next);   // the number that is there, else `next`
//   index.Find(other);                                // -1: not there
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace msprobe::compare {

class ContentMap {
 public:
  // Makes room for so many keys at once.
  void Reserve(size_t keys) {
    while (2 * keys >= slots_.size()) Grow();
  }
  // `number`: not negative.
  int32_t Insert(uint64_t key, int32_t number) {
    if (2 * size_ >= slots_.size()) Grow();
    Slot& slot = slots_[Place(key)];
    if (slot.number < 0) {
      slot = {key, number};
      ++size_;
    }
    return slot.number;
  }
  int32_t Find(uint64_t key) const { return slots_.empty() ? -1 : slots_[Place(key)].number; }
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t number = -1;  // -1: the slot is free
  };

  void Grow() {
    std::vector<Slot> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number >= 0) slots_[Place(slot.key)] = slot;
    }
  }
  size_t Place(uint64_t key) const {
    size_t i = (key >> 1) & (slots_.size() - 1);
    while (slots_[i].number >= 0 && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Slot> slots_;  // their number is a power of two, at most half are used
  size_t size_ = 0;
};

}  // namespace msprobe::compare
