// A digest that says whether two tensors of one dtype and shape hold the same bytes.
//
//   const ContentDigest digest = DigestContent(bytes);   // about as fast as memory is read
//   bool same = digest == DigestContent(data);           // the same bytes, for sure enough
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace msprobe::kernels {

struct ContentDigest {
  uint64_t low = 0, high = 0;
  bool operator==(const ContentDigest&) const = default;
};

// 128 bits that depend on each byte, its place, and the number of bytes. The same bits on every
// SIMD target. The sums are those of the fingerprint (fingerprint.h), carried through all bytes and
// folded twice with different keys, so that 128 of their 512 bits remain. Two different contents
// have the same digest with a probability of about 2^-128. Not cryptographic: whoever knows the
// keys can make two such contents.
ContentDigest DigestContent(std::string_view bytes);

}  // namespace msprobe::kernels
