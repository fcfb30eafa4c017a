// `msprobe show` of tensor files: .npy, .pt, .safetensors.
#pragma once

#include <cstdint>
#include <string>

#include "cli/console.h"
#include "engine/base/status.h"

namespace msprobe::cli {

struct ShowTensorOptions {
  std::string filter;  // only tensors whose name contains this
  std::string slice;   // "": statistics, else these elements
  std::string golden;  // a file to print the worst elements against; "": none
  int64_t limit = 0;   // elements or tensors; 0: a default
};

// Of one tensor statistics, where its extremes and first bad element are, and its first elements;
// of several a line each.
Status ShowTensors(const std::string& path, const ShowTensorOptions& options, Console& out);

}  // namespace msprobe::cli
