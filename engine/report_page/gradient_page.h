// A comparison of gradients as one HTML page, which needs no other file and no network: where the
// similarity first falls as plain text, and all parameters over the steps (trends.h).
//
//   const PageText page = GradientPage(comparison, "runs/new", "runs/good");
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/gradients.html", page));
#pragma once

#include <string_view>

#include "engine/gradients/compare_gradients.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

PageText GradientPage(const gradients::GradientComparison& comparison, std::string_view target,
                      std::string_view golden);

}  // namespace msprobe::report_page
