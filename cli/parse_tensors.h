// The texts about tensor files that the interactive `python -m ptdbg_ascend.parse` prints.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace msprobe::cli {

// "[Shape: (2, 3)] [Dtype: float32] [Max: 1.5] [Min: -2.0] [Mean: 0.25]". Errors: those of
// ReadTensorFile.
Result<std::string> DescribeTensorFile(const std::string& path);

struct TensorFileComparison {
  int64_t lines = 20;                         // in each of the two lists, at most
  double absolute = 0.001, relative = 0.001;  // wrong: |a - b| > absolute + relative |b|
  bool save = false;                          // write both as text, FILE.txt
};
// Lists the first wrong elements and those with the largest errors, and says how many elements are
// wrong, the cosine, and which files were saved. Tensors of different shapes are compared element
// by element in their order, up to the end of the shorter one. Errors: those of ReadTensorFile;
// kUnsupported for complex and packed dtypes; kInvalidArgument for empty tensors and negative
// limits.
Result<std::string> CompareTensorFiles(const std::string& target, const std::string& golden,
                                       const TensorFileComparison& options);

}  // namespace msprobe::cli
