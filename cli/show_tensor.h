// `msprobe show` of tensor files: .npy, .pt, .safetensors.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "engine/base/status.h"

namespace msprobe::cli {

struct ShowTensorOptions {
  std::string filter;  // only tensors whose name contains this
  std::string slice;   // print these elements; "": print statistics
  std::string golden;  // another file: print the elements with the largest errors; "": none
  int64_t limit = 0;   // elements or tensors; 0: a default
};

// A file with one tensor: prints statistics, the positions of its extremes and of its first NaN or
// infinity, and its first elements. A file with several: one line for each.
Status ShowTensors(const std::string& path, const ShowTensorOptions& options, Console& out);

}  // namespace msprobe::cli
