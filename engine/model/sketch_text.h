// The text of a sketch (engine/kernels/sketch.h) in a dump, under the key "sk".
//
//   AppendSketch(&line, sketch);                    // 55 characters, 77 with a grid
//   const std::optional<kernels::Sketch> s = ParseSketch(text);
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/kernels/sketch.h"

namespace msprobe {

// Five numbers, `rows`, `squares` and `wave`, or seven, with `grid`: of each double the eight bytes
// as AppendBase64 (engine/base/text.h) writes them.
void AppendSketch(std::string* out, const kernels::Sketch& sketch);
// nullopt: the text is no such text, or has a number that is not finite.
std::optional<kernels::Sketch> ParseSketch(std::string_view text);

}  // namespace msprobe
