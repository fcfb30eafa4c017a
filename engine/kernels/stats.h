// One pass over a tensor gives its statistics (four numbers), its counts and its fingerprint.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "engine/kernels/digest.h"
#include "engine/kernels/sketch.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

struct Stats {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  int64_t count = 0;                                    // elements, NaN included
  int64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;  // elements of each kind; both zeros count
  double max = kNaN, min = kNaN, mean = kNaN,
         norm = kNaN;  // NaN if any element is NaN or count == 0
  // Exact extrema of integer and bool tensors (int64 beyond 2^53 does not fit a double); uint64 as
  // its bit pattern.
  int64_t int_max = 0, int_min = 0;
  // Of the element bytes in logical order: equal tensors have equal fingerprints, whatever their
  // strides; a changed, swapped or added element changes it. Also depends on dtype (not on shape).
  // Not cryptographic.
  uint64_t fingerprint = 0;
  uint64_t checksum = 0;  // of the kind that was passed to ComputeStats; 0 for Checksum::kNone
};

// Max, min, mean and L2 norm; of the modulus for complex dtypes. Sums run in double over a fixed
// virtual lane count and chunk tree, so the result is bit-identical on every SIMD target, for any
// number of threads and for any strides. Reads memory once. float4_e2m1fn_x2 counts both halves of
// each byte.
//
//   Stats s = ComputeStats(view);          // on this thread
//   s = ComputeStats(view, &pool);         // large tensors are split
//   s = ComputeStats(view, &pool, Checksum::kCrc32);  // s.checksum == Crc32(view)
//
// `sketch`: set to ComputeSketch(view) in the same pass; null: not computed. A float tensor with
// NaN or extremes (rest_stats.h) gets none: this pass does not know yet which elements count.
Stats ComputeStats(const TensorView& view, ThreadPool* pool = nullptr,
                   Checksum checksum = Checksum::kNone, std::optional<Sketch>* sketch = nullptr);

}  // namespace msprobe::kernels
