// A result table, as a comparison. Tables of all generations are read: compare_result_TIME.csv and
// .xlsx of msprobe compare, of msprobe 1 to 26, of ptdbg_ascend and of torch_npu.hooks.
//
//   MSPROBE_ASSIGN_OR_RETURN(compare::Comparison c, ReadResultTable("out/compare_result_1.csv"));
//   Print("{} calls, first {}", c.pairs.size(), c.first.pair);
#pragma once

#include <string>

#include "engine/compare/model/comparison.h"

namespace msprobe::results {

// Columns are found by their names; the page of a column that is not there is empty. Errors: those
// of the file; kInvalidDump when it is a table without the columns "NPU Name" and "Bench Name".
Result<compare::Comparison> ReadResultTable(const std::string& path);

}  // namespace msprobe::results
