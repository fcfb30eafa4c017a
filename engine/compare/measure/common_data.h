// What two dumps have in common: elements, checksums or statistics.
#pragma once

#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// `wanted`, when both sides have the data for it; without it tensors when both have them, checksums
// when both carry them, else statistics. Errors: kInvalidArgument.
Result<Mode> ChooseMode(const Dump& target, const Dump& golden, std::optional<Mode> wanted);

// For statistics: where only one side has tensor data, the statistics that it did not record are
// computed from them. Answers the line that says what the comparison was reduced to, "" when it was
// not.
std::string ReduceToStatistics(const CompareOptions& options, ThreadPool& pool, Dump* target,
                               Dump* golden);

}  // namespace msprobe::compare
