// The call that a person names, among those that can be executed again.
//
//   const std::vector<RecordedCall> calls = CallsOf(dump, {});
//   MSPROBE_ASSIGN_OR_RETURN(const size_t call, FindCall(dump, calls, "linear.3", "runs/a/step0"));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/replay/recorded_call.h"

namespace msprobe::replay {

// Index into `calls`. Errors, about the file or folder `path`: those of OneCallNamed
// (engine/model/named_calls.h); of a text that names a module, the hint lists the calls inside of
// it.
Result<size_t> FindCall(const Dump& dump, const std::vector<RecordedCall>& calls,
                        std::string_view text, std::string_view path);

}  // namespace msprobe::replay
