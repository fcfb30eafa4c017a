// A set of fingerprints, for dumps of millions of values: it holds one 64-bit hash for each, where
// std::set would take a tenth of the memory of the dumps.
//
//   FingerprintSet seen;
//   if (seen.Insert(leaf.fingerprint)) ++count;   // the first time
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

class FingerprintSet {
 public:
  // false: it was in the set already.
  bool Insert(std::string_view text) { return InsertHash(HashText(text)); }
  bool Has(std::string_view text) const { return HasHash(HashText(text)); }
  // The same for a hash of 64 bits that the caller has made, such as ContentKey.
  bool InsertHash(uint64_t hash) {
    if (2 * size_ >= slots_.size()) Grow();
    hash |= 1;
    uint64_t* slot = Find(hash);
    if (*slot == hash) return false;
    *slot = hash;
    ++size_;
    return true;
  }
  bool HasHash(uint64_t hash) const { return !slots_.empty() && slots_[Place(hash | 1)] != 0; }
  size_t size() const { return size_; }

 private:
  void Grow() {
    std::vector<uint64_t> old(std::max<size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const uint64_t hash : old) {
      if (hash != 0) *Find(hash) = hash;
    }
  }
  uint64_t* Find(uint64_t hash) { return &slots_[Place(hash)]; }
  size_t Place(uint64_t hash) const {
    size_t i = (hash >> 1) & (slots_.size() - 1);
    while (slots_[i] != 0 && slots_[i] != hash) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<uint64_t> slots_;  // their number is a power of two, at most half are used; 0: free
  size_t size_ = 0;
};

}  // namespace msprobe::compare
