// What the interactive `python -m ptdbg_ascend.parse` says of tensor files.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace msprobe::cli {

// "[Shape: (2, 3)] [Dtype: float32] [Max: 1.5] [Min: -2.0] [Mean: 0.25]". Errors: those of
// ReadTensorFile.
Result<std::string> DescribeTensorFile(const std::string& path);

struct TensorFileComparison {
  int64_t lines = 20;                         // of each of the two lists
  double absolute = 0.001, relative = 0.001;  // wrong: |a - b| > absolute + relative |b|
  bool save = false;                          // write both as text, FILE.txt
};
// The first wrong elements, those furthest apart, how many there are, the cosine; what was saved.
// Tensors of other shapes are compared in their order, as far as the shorter goes. Errors: those of
// ReadTensorFile; kUnsupported for complex and packed dtypes; kInvalidArgument for empty tensors
// and negative limits.
Result<std::string> CompareTensorFiles(const std::string& target, const std::string& golden,
                                       const TensorFileComparison& options);

}  // namespace msprobe::cli
