// advisor_TIME.txt of ptdbg_ascend, msprobe 1.0 to 8: three lines for the first row that fails.
//
//   Line: 14
//   Suspect Nodes: Module.head.Linear.backward.0.input.0
//   Expert Advice: ...
#pragma once

#include <string>

#include "engine/compare/table/table_format.h"

namespace msprobe::compare {

// Finds the first row whose verdict in this table is No, Different, Warning, or error (26). "Line"
// is the row's index, from 0; in the table of ptdbg_ascend the line in the csv, from 1. When no row
// fails, the first two lines say NA.
std::string AdvisorText(const Comparison& comparison, const TableFormat& table,
                        Generation generation);

}  // namespace msprobe::compare
