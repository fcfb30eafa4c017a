// The obvious version of DigestContent, kept as the oracle of the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/kernels/content_digest.h"
#include "engine/kernels/fingerprint.h"

namespace msprobe::kernels {

// The low word is that of a fingerprint's chunk 0; the high word takes other keys.
inline ContentDigest FinishDigest(const uint64_t sums[8], uint64_t bytes) {
  uint64_t high = bytes * 0xd1342543de82ef95 + 1;
  for (int j = 0; j < 8; ++j) {
    const uint64_t x = (sums[j] ^ kHashKeys.word[2][j]) * (kHashKeys.word[3][j] | 1);
    high += (x ^ x >> 29) * 0xc2b2ae3d27d4eb4f;
  }
  return {FinishChunk(sums, 0, bytes), Mix64(high)};
}

inline ContentDigest DigestContentScalar(std::string_view bytes) {
  uint64_t sums[8] = {};
  for (size_t s = 0; s * kStripeBytes < bytes.size(); ++s) {
    uint64_t words[8] = {};
    const std::string_view stripe = bytes.substr(s * kStripeBytes, kStripeBytes);
    std::memcpy(words, stripe.data(), stripe.size());
    if (s > 0 && s % kBlockStripes == 0) {
      for (uint64_t& sum : sums) sum = ScrambleSum(sum);
    }
    for (size_t j = 0; j < 8; ++j) {
      const uint64_t key = kHashKeys.word[s % kBlockStripes][j];
      const uint64_t low = static_cast<uint32_t>(words[j]) + (key & 0xffffffff);
      const uint64_t high = (words[j] >> 32) + (key >> 32);
      sums[j] += (low & 0xffffffff) * (high & 0xffffffff);
      sums[j ^ 1] += words[j];
    }
  }
  return FinishDigest(sums, bytes.size());
}

}  // namespace msprobe::kernels
