// Finds the dump that a running program is compared with, for its step and rank: "bench_path" and
// "baseline" of the configuration.
//
//   MSPROBE_RETURN_IF_ERROR(CheckReference("baseline", "runs/golden", "runs/now").status());
//   MSPROBE_ASSIGN_OR_RETURN(auto dump, FindReference("runs/golden", step, rank));
//   if (dump) Read(dump->path);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/read/reader.h"

namespace msprobe::dump {

// The dumps below `path`, in no case none. `key`: of the configuration, for messages. Errors:
// kNotFound; kInvalidArgument: a run that writes to `dump_path` would overwrite them.
Result<std::vector<DumpLocation>> CheckReference(std::string_view key, const std::string& path,
                                                 const std::string& dump_path);

// The dumps of a step below `path`, and those that belong to no step. Looks into the folder of the
// step alone where there is one, so the time does not grow with the number of steps.
Result<std::vector<DumpLocation>> DumpsOfStep(const std::string& path, int64_t step);

// The dump of a step and rank. When the step has a single dump, and the run or the dump has no
// rank, that dump is taken. nullopt: there is not exactly one.
Result<std::optional<DumpLocation>> FindReference(const std::string& path, int64_t step,
                                                  std::optional<int> rank);
// Why FindReference found none: "runs/golden holds no dump of this step".
Message WhyNoReference(const std::string& path, int64_t step);

}  // namespace msprobe::dump
