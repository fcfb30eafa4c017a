// Reads pkl dumps of torch_npu.hooks and ptdbg_ascend: text files with one JSON list on each line.
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

// Fills all members of `dump` that the file and the folders of .npy files beside it tell; path and
// folder are set already. Lines of one call become one record, by their parsed names. In backward
// calls of torch_npu.hooks and ptdbg_ascend 0.1 the values named "input" are the results of the
// call: they get the slot kOutput and keep their names. Lines that cannot be read are left out and
// counted in dump->note; an unfinished last line makes the dump incomplete. Errors: kInvalidDump
// when no line can be read; kUnsupported when `memory` is too small for the dump.
Status ReadPklFile(MappedFile file, const ReadOptions& options, MemoryShare* memory, Dump* dump);

// The first half of ReadPklFile: the lines without the folders. Views point into `text`. `segments`
// gets one number for each record: how often the numbers in front of names began at 0 again before
// that record. Each time, ptdbg_ascend 0.1 began a new folder of .npy files.
Status ReadPklLines(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<int32_t>* segments, MemoryShare* memory = nullptr);

}  // namespace msprobe::dump
