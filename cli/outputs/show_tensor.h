// `msprobe show` of tensor files: .npy, .pt, .safetensors.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command_line/console.h"
#include "engine/base/status.h"

namespace msprobe::cli {

inline constexpr int64_t kDefaultLimit = -1;  // as many as the kind of file suggests

struct ShowTensorOptions {
  std::string filter;  // only tensors whose name contains this
  std::string slice;   // print these elements; "": print statistics
  std::string golden;  // another file: print the elements with the largest errors; "": none
  int64_t limit = kDefaultLimit;  // elements, rows or tensors; 0: all

  int64_t LimitOr(int64_t otherwise) const {
    return limit < 0 ? otherwise : limit == 0 ? INT64_MAX : limit;
  }
};

// A file with one tensor: prints statistics, the positions of its extremes and of its first NaN or
// infinity, and its first elements. A file with several: one line for each.
Status ShowTensors(const std::string& path, const ShowTensorOptions& options, Console& out);

}  // namespace msprobe::cli
