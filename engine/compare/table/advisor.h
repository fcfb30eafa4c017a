// advisor_TIME.txt of ptdbg_ascend, msprobe 1.0 and 8: three lines for the first row that fails.
//
//   Line: 14
//   Suspect Nodes: Module.head.Linear.backward.0.input.0
//   Expert Advice: ...
#pragma once

#include <string>

#include "engine/compare/table/table_format.h"

namespace msprobe::compare {

// The first row whose verdict in this table is No, Different, Warning, or error (26). Line counts
// rows from 0, below the header; in the table of ptdbg_ascend, lines of the csv from 1. NA in the
// first two lines when there is none.
std::string AdvisorText(const Comparison& comparison, const TableFormat& table,
                        Generation generation);

}  // namespace msprobe::compare
