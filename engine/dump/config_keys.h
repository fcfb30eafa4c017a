// The keys and words that config.json may hold: ours, and those of other generations that get an
// answer of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/formats/json.h"

namespace msprobe {

inline constexpr std::string_view kTopKeys[] = {"task", "dump_path", "rank",
                                                "step", "level",     "extra_info"};
inline constexpr std::string_view kTaskKeys[] = {"scope", "list", "data_mode", "summary_mode",
                                                 "tensor_list"};
inline constexpr std::string_view kTasks[] = {"statistics", "tensor"};
inline constexpr std::string_view kLevels[] = {"L0", "L1", "mix"};
inline constexpr std::string_view kDataModes[] = {"all", "forward", "backward", "input", "output"};
inline constexpr std::string_view kSummaryModes[] = {"statistics", "md5"};

// Of other generations, or not possible here. Their own sections may stand in the file: it is
// shared between tools.
inline constexpr std::string_view kOtherTasks[] = {
    "structure",      "nan_check",      "acc_check",  "diff_check", "exception_dump",
    "overflow_check", "free_benchmark", "grad_probe", "run_ut"};
inline constexpr std::string_view kOtherLevels[] = {"L2", "debug"};
inline constexpr std::string_view kOtherSummaryModes[] = {"xor"};

// What to do about a key that is not among ours. `section`: the task whose section it stands in,
// empty at the top. One that another generation knows and that asks for nothing else than what
// happens anyway is added to `warnings`; every other is an error.
Status UnknownKey(std::string_view path, std::string_view section, const JsonMember& member,
                  std::vector<std::string>* warnings);

}  // namespace msprobe
