// What a reader asks of one dump, as HTML: where NaN and infinity begin, which values are largest,
// where values grow, and what is not recorded. Each call is a link that selects it on the page.
//
//   std::string html = DumpQuestions(dump);       // <section id="asked">...
#pragma once

#include <string>

#include "engine/model/table.h"

namespace msprobe::report_page {

// One pass over the dump's values. "" for a dump without calls.
std::string DumpQuestions(const Dump& dump);

}  // namespace msprobe::report_page
