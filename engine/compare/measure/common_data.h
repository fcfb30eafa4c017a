// Which data two dumps have in common, and are compared by: elements, checksums or statistics.
#pragma once

#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// `wanted`, when it is given. Otherwise tensors when both dumps have tensor files, checksums when
// both have checksums, else statistics. Errors: kInvalidArgument when a side lacks the data for
// `wanted`.
Result<Mode> ChooseMode(const Dump& target, const Dump& golden, std::optional<Mode> wanted);

// For a comparison of statistics. When only one side has tensor files, the statistics that this
// side did not record are computed from the files. The result is a sentence that says so, for the
// reports; "" when nothing was computed.
Message ReduceToStatistics(const CompareOptions& options, ThreadPool& pool, Dump* target,
                           Dump* golden);

}  // namespace msprobe::compare
