// How far the elements of two tensors are apart: their differences counted by powers of ten, the
// first elements that differ, and those that are farthest apart.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

// T and G are a target and a golden value as in Diff (diff.h); what is equal is defined there.
struct DiffHistogram {
  static constexpr int kLowest = -46,
                       kHighest = 38;  // powers of ten; float32 ends at 1e-45 and 3e38
  static constexpr size_t kMostPlaces = 5;

  struct Place {
    int64_t index = 0;              // logical index of the element
    double target = 0, golden = 0;  // moduli where one of the dtypes is complex
    double distance = 0;            // |T - G|; infinity where a side is not finite
  };
  // At most kMostPlaces places.
  struct Places {
    std::array<Place, kMostPlaces> place;
    size_t count = 0;
    std::span<const Place> span() const { return {place.data(), count}; }
  };

  int64_t count = 0;      // elements compared
  int64_t equal = 0;      // of them
  int64_t nonfinite = 0;  // unequal, and a side is NaN or infinite
  // The other unequal elements. decades[k - kLowest]: those with 10^k <= |T - G| < 10^(k + 1). The
  // first one also counts smaller, the last one larger differences.
  std::array<int64_t, kHighest - kLowest + 1> decades{};
  Places first;  // the unequal elements with the lowest indices, in their order
  Places worst;  // those with the largest distance, falling; of equal ones the lower index first
};

// One pass over memory. Views of equal element count, any two dtypes; the same result on every SIMD
// target and for any number of threads. Errors: kInvalidArgument when the counts differ.
//
//   MSPROBE_ASSIGN_OR_RETURN(DiffHistogram h, CountDifferences(target, golden, &pool));
//   const int64_t tiny = h.decades[-7 - DiffHistogram::kLowest];  // 1e-7 <= |T - G| < 1e-6
Result<DiffHistogram> CountDifferences(const TensorView& target, const TensorView& golden,
                                       ThreadPool* pool = nullptr);

}  // namespace msprobe::kernels
