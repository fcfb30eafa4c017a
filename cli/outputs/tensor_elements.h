// Single elements of tensors, for people to look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor/tensor_view.h"

namespace msprobe::cli {

// The position of an element: "[3, 0, 17]".
std::string Place(const TensorView& view, int64_t flat);

// Whether each element is one real number: not complex, and not two packed values.
bool HasRealElements(DType dtype);

// Calls visit(logical index, address) for each element.
template <typename Visit>
void ForEachElement(const TensorView& view, Visit&& visit) {
  const StridedRuns runs = MakeRuns(view);
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  const char* data = static_cast<const char*>(view.data);
  int64_t flat = 0;
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    const char* p = data + offset * size;
    for (int64_t i = 0; i < runs.run; ++i, p += runs.run_stride * size) visit(flat++, p);
  });
}

struct ElementPair {
  double error = 0;  // infinite where only one side is NaN
  int64_t flat = 0;  // logical index
  std::string target, golden;
};
// The elements that differ, the largest error first, at most `most`. Both views must have real
// elements, and equally many.
std::vector<ElementPair> WorstElements(const TensorView& target, const TensorView& golden,
                                       int64_t most);

}  // namespace msprobe::cli
