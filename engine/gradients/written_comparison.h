// A comparison of gradients, read from the tables that it wrote.
//
//   if (IsWrittenComparison("out")) {
//     MSPROBE_ASSIGN_OR_RETURN(GradientComparison c, ReadWrittenComparison("out"));
//   }
#pragma once

#include <string>

#include "engine/gradients/compare_gradients.h"

namespace msprobe::gradients {

// Whether `path` is such a folder (similarities.csv in it or in its folders rank<R>), or such a
// table.
bool IsWrittenComparison(const std::string& path);

// `path`: the output of grad_compare, ours or of an older tool, or one of its tables. Shares are
// those of the tables; counts of elements, norms and notes are not in them. Falls are found by
// `rule`. A table that cannot be read is one of the errors; if it is the only one, its error is
// returned.
Result<GradientComparison> ReadWrittenComparison(const std::string& path,
                                                 const FallRule& rule = {});

}  // namespace msprobe::gradients
