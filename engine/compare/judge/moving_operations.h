// Operations whose results hold elements of their inputs and nothing else: they move, select, mask
// or cast, and do not round. From equal bits they make equal bits on every device.
//
//   MovesData("Tensor.repeat_interleave");   // true
//   MovesData("Functional.linear");          // false
#pragma once

#include <string_view>

namespace msprobe::compare {

// `api` is Record::api with any prefix, also of an in-place operation: "Tensor.masked_fill_".
bool MovesData(std::string_view api);

}  // namespace msprobe::compare
