// The headers that the running PyTorch ships. No header of PyTorch is included, so who uses the
// layout of one of its structs first asks whether it is the layout that he knows.
//
//   const bool is_known = TorchHeaderHas("ATen/record_function.h", {"FUNCTION=0,"});
#pragma once

#include <initializer_list>
#include <string_view>

namespace msprobe::capture {

// Whether the header has each of these texts, blanks and line ends left out on its side. False
// where the header is missing.
bool TorchHeaderHas(std::string_view header, std::initializer_list<std::string_view> texts);

}  // namespace msprobe::capture
