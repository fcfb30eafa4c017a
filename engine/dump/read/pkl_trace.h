// What `parse` of ptdbg_ascend shows of a pkl dump: the call stacks and statistics of the calls
// whose names begin with the given text.
//
//   MSPROBE_ASSIGN_OR_RETURN(PklTrace trace, TracePklFile("dump.pkl", "Torch_relu_0"));
//   Print(trace.text);      // "\nTrace back(Torch_relu_0_forward_stack_info):\n  File ..."
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::dump {

struct PklTrace {
  std::string text;               // "" when no name begins so
  std::vector<Message> warnings;  // for each line that could not be read, with its number
};

// In the order of the file: stacks with the outermost frame first, an empty line before each;
// one heading before the statistics. Lines without statistics (overflows of 0.1) are left out;
// in dumps of checksums these are shown instead. `path`: the file, or a folder that holds one dump.
// Errors: kNotFound; kInvalidDump when no line can be read.
Result<PklTrace> TracePklFile(const std::string& path, std::string_view prefix);
// The same of `text`, read from `path`.
Result<PklTrace> TraceText(std::string_view path, std::string_view text, std::string_view prefix);

// Whether torch_npu.hooks or ptdbg_ascend 0.1 wrote the file, whose lines begin with numbers; told
// from its first lines. Errors: kNotFound, kIo.
Result<bool> HasNumberedLines(const std::string& path);

}  // namespace msprobe::dump
