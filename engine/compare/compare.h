// Two dumps in, one Comparison out: align -> measure -> judge -> first divergence.
//
//   MSPROBE_ASSIGN_OR_RETURN(Dump target, ReadDump("runs/new/step0/rank0"));
//   MSPROBE_ASSIGN_OR_RETURN(Dump golden, ReadDump("runs/old/step0/rank0"));
//   MSPROBE_ASSIGN_OR_RETURN(Comparison result, Compare(std::move(target), std::move(golden), {}));
//   std::string text = TerminalReport(result);  // or JsonReport, WriteTableCsv
#pragma once

#include "engine/base/status.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Does not fail because of single rows or files: the row of a damaged tensor file is unknown, and
// its note says why. Errors: kInvalidArgument when the two dumps cannot be compared at all: a dump
// of task `structure`, a mode for which a dump has no data, or a mapping that names nothing in the
// target.
Result<Comparison> Compare(Dump target, Dump golden, const CompareOptions& options = {});

}  // namespace msprobe::compare
