// A fingerprint of a small part of a range of memory, spread over all of it: tells cheaply whether
// memory whose numbers are known has been written since.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::kernels {

// The range is divided into parts of `kLinesPerSample` cache lines of 64 bytes. One line of each
// part is read, at a place that is the same in each call for the same size; the first and the last
// line of the range always. A write that changes a whole part is always seen; a write of one
// element is seen once in `kLinesPerSample` times.
//
//   const uint64_t before = SampleLines(p, bytes_of_p);
//   Train();
//   if (SampleLines(p, bytes_of_p) != before) ReadAgain(p);
uint64_t SampleLines(const void* begin, size_t bytes);

inline constexpr size_t kLinesPerSample = 512;

}  // namespace msprobe::kernels
