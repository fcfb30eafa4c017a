// Gradients as one HTML page, which needs no other file and no network: what is wrong first, as
// plain text, and all parameters over the steps (trends.h).
//
//   const PageText page = GradientPage(comparison, "runs/new", "runs/good");
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/gradients.html", page));
#pragma once

#include <string_view>

#include "engine/gradients/compare_gradients.h"
#include "engine/gradients/recorded_norms.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

// Of a comparison: where the similarity first falls. `golden` may be "": not known.
PageText GradientPage(const gradients::GradientComparison& comparison, std::string_view target,
                      std::string_view golden);
// Of one run: the first gradient that is not finite, else the largest one.
PageText GradientNormsPage(const gradients::Recording& recording);

}  // namespace msprobe::report_page
