// The constants of the fingerprint and its scalar part. The vector part is Hasher in lanes-inl.h.
//
// A chunk's bytes are read as stripes of eight 64-bit words (little endian, the last stripe padded
// with zeros), and kBlockStripes stripes make a block. Word j of a block's stripe s meets the key
// kHashKeys[s][j]:
//
//   low  = (low half of the word  + low half of the key)  mod 2^32
//   high = (high half of the word + high half of the key) mod 2^32
//   sum[j]     += low * high          the NH family of UMAC: position-dependent, 32x32->64
//   sum[j ^ 1] += word                so that a changed word shows even when a factor is zero
//
// Between two blocks each sum goes through ScrambleSum. FinishChunk folds the eight sums, the
// chunk's size and its number to one word; a tensor's fingerprint adds up its chunks' words, so
// chunks may be computed in any order, and mixes in the dtype and the size. Not cryptographic.
//
// The keys are random because regular ones are not enough: with keys in arithmetic progression,
// swapping elements i and i + d gave the same sum as swapping j and j + d whenever the elements
// counted up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::kernels {

inline constexpr size_t kStripeBytes = 64;
// A permutation of the 64-bit words in which each input bit changes about half of the output
// (Stafford's variant 13 of the MurmurHash3 finalizer).
constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

inline constexpr size_t kBlockStripes = 64;
struct HashKeys {
  alignas(64) uint64_t word[kBlockStripes][8];
  // SplitMix64 started at 0.
  constexpr HashKeys() : word() {
    uint64_t state = 0;
    for (auto& stripe : word) {
      for (uint64_t& key : stripe) key = Mix64(state += 0x9e3779b97f4a7c15);
    }
  }
};
inline constexpr HashKeys kHashKeys;

// A permutation of the 64-bit words; the factor is odd and fits 32 bits, which is cheap in vectors.
inline constexpr uint64_t kScrambleFactor = 0x9e3779b1;
inline uint64_t ScrambleSum(uint64_t sum) { return (sum ^ sum >> 37) * kScrambleFactor; }

// `sums` as above; `chunk` counts from 0.
inline uint64_t FinishChunk(const uint64_t sums[8], uint64_t chunk, uint64_t bytes) {
  uint64_t h = bytes * 0x9e3779b97f4a7c15 + chunk * 0xd1342543de82ef95;
  for (int j = 0; j < 8; ++j) {
    const uint64_t x = (sums[j] ^ kHashKeys.word[0][j]) * (kHashKeys.word[1][j] | 1);
    h += (x ^ x >> 32) * 0x9fb21c651e98df25;
  }
  return Mix64(h);
}

// `chunk_sum`: the chunks' words added up.
inline uint64_t FinishFingerprint(uint64_t chunk_sum, unsigned dtype, uint64_t bytes) {
  return Mix64(chunk_sum + Mix64(bytes * 64 + dtype + 1));
}

}  // namespace msprobe::kernels
