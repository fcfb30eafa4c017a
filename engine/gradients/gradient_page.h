// A comparison of gradients as one HTML page: the plots are SVG inside the page. It needs no other
// file, no network and no JavaScript; all text from the recordings is escaped.
//
//   std::string page = GradientPage(comparison, "runs/new", "runs/good");
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/gradients.html", page));
#pragma once

#include <string>
#include <string_view>

#include "engine/gradients/compare_gradients.h"

namespace msprobe::gradients {

// At most this many parameters are drawn: those whose similarity is lowest. The page says so.
inline constexpr size_t kMostPlots = 500;

std::string GradientPage(const GradientComparison& comparison, std::string_view target,
                         std::string_view golden);

}  // namespace msprobe::gradients
