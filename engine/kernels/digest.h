// The checksums of the older tools.
#pragma once

#include <cstdint>

#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

// ComputeStats computes one of them in the same pass.
enum class Checksum : uint8_t { kNone, kCrc32, kXor };

// CRC-32 (IEEE 802.3, as zlib.crc32) of the element bytes in logical order: what the older tools
// store under "md5".
//
//   AppendHex(&text, Crc32(view), 8);      // "0a1b2c3d"
uint32_t Crc32(const TensorView& view);

// Exclusive or of the element bytes in logical order, taken as little-endian words of 8 bytes, the
// last one filled up with zeros. The order of words does not change it, and two equal words cancel
// out. Of no elements: 0.
//
//   AppendHex(&text, Xor64(view), 16);     // "00000000deadbeef"
uint64_t Xor64(const TensorView& view);

}  // namespace msprobe::kernels
