// The texts about tensor files that the commands pt and cn of `msprobe parse` print.
//
//   MSPROBE_ASSIGN_OR_RETURN(const std::string text, DescribeTensorFile("a.npy", /*save=*/false));
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace msprobe::cli {

// The first 128 elements, eight in a row, then "[Shape: (2, 3)] [Dtype: float32] [Max: 1.5] [Min:
// -2.0] [Mean: 0.25]" and the path. Of a dump file of CANN, the same for each input and output.
// `save`: all elements as text, FILE.txt, or FILE.input.0.txt. Errors: those of ReadOperatorFile.
Result<std::string> DescribeTensorFile(const std::string& path, bool save);

struct TensorFileComparison {
  int64_t lines = 20;                         // in each of the two lists, at most
  double absolute = 0.001, relative = 0.001;  // wrong: |a - b| > absolute + relative |b|
  bool save = false;                          // write both as text, FILE.txt
};
// Lists the first wrong elements and those with the largest errors, and says how many elements are
// wrong, the cosine, and which files were saved. Tensors of different shapes are compared element
// by element in their order, up to the end of the shorter one. Errors: those of ReadTensorFile;
// kUnsupported for complex and packed dtypes; kInvalidArgument for empty tensors and negative
// limits. `close`: whether no element is wrong, and the shapes agree.
Result<std::string> CompareTensorFiles(const std::string& target, const std::string& golden,
                                       const TensorFileComparison& options, bool* close);

}  // namespace msprobe::cli
