// The text of a .npy header: a restricted reader of the one Python literal NumPy writes there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::formats {

struct NpyHeader {
  std::string_view descr;  // "<f4", without the quotes
  bool fortran_order = false;
  std::vector<int64_t> shape;  // extents >= 0
};

// `text`: "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" and blanks; it starts at
// `offset` of `path`. Keys in any order, each exactly once. kUnsupported when descr is not a plain
// string (structured arrays).
Result<NpyHeader> ParseNpyHeader(std::string_view text, const std::string& path, uint64_t offset);

}  // namespace msprobe::formats
