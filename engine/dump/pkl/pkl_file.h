// Dumps of torch_npu.hooks and ptdbg_ascend: text, one JSON list a line, in files called .pkl.
//
//   ["Functional_relu_0_forward_input.0", 0, [], "torch.float32", [2, 3], [1.5, -2.0, 0.25]]
//   ["0_Functional_relu_forward_input.0", [1.5, -2.0, ...], "torch.float32", [2, 3]]
//   ["Functional_relu_0_forward_stack_info", [["net.py", "18", "forward", "y = relu(x)"], ...]]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/model/memory_budget.h"
#include "engine/model/read_options.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Fills everything of `dump` (path and folder are set) that the file and the folders of .npy files
// beside it know. Lines of one call become one record, by their parsed names. In backward calls of
// torch_npu.hooks and ptdbg_ascend 0.1 "input" is what the call produced: their slots say so, their
// names stay. Lines that cannot be read are left out and counted in dump->note; an unfinished last
// line makes the dump incomplete. Errors: kInvalidDump when no line can be
// read; kUnsupported when `memory` does not allow for it.
Status ReadPklFile(MappedFile file, const ReadOptions& options, MemoryShare* memory, Dump* dump);

// Its first half: the lines alone. Views point into `text`. `segments` gets one number a record:
// how often the numbers in front of names started over before it (each time ptdbg_ascend 0.1 began
// a folder of its own).
Status ReadPklLines(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<int32_t>* segments, MemoryShare* memory = nullptr);

}  // namespace msprobe::dump
