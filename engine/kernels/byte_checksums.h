// The checksums of digest.h over plain bytes.
//
//   uint32_t crc = UpdateCrc32(0, p, n);          // of n bytes
//   crc = UpdateCrc32(crc, p + n, m);             // of n + m bytes
//   crc = CombineCrc32(crc_of_a, crc_of_b, Crc32Shift(bytes_of_b));   // of a, followed by b
//   uint64_t words = XorWords(p, n) ^ XorWords(p + n, m);   // of n + m bytes, n a multiple of 8
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::kernels {

uint32_t UpdateCrc32(uint32_t crc, const uint8_t* p, size_t size);

// `shift`: Crc32Shift(bytes of the second). It costs microseconds; the combination much less.
uint32_t Crc32Shift(uint64_t bytes);
uint32_t CombineCrc32(uint32_t first, uint32_t second, uint32_t shift);

uint64_t XorWords(const uint8_t* p, size_t size);

}  // namespace msprobe::kernels
