// How badly NaN and infinities spread at a call, in the words of msprobe 26's graph.
//
//   for (const Record& record : dump.records)
//     Print("{}: {}", record.name, OverflowLevel(dump, record));   // "critical", ... or ""
#pragma once

#include <string_view>

#include "engine/model/table.h"

namespace msprobe::exports {

// critical: an output has NaN or an infinity, and no input has. high: both have; or the largest
// norm of an output is more than 100 times the largest norm of an input. medium: an input has, and
// no output. "": nothing of this, or the old content of memory is no error: the call returns
// unwritten memory (empty_like), receives from another process, or fills with what it is given
// (masked_fill_). Only max, min and mean are looked at, and of the norms only those of tensors.
std::string_view OverflowLevel(const Dump& dump, const Record& record);

}  // namespace msprobe::exports
