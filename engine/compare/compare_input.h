// compare.json of msprobe 1.0 to 8, which names the two dumps to compare.
//
//   {"npu_path": "run_b/step3/rank0/dump.json", "bench_path": "run_a/step3/rank0/dump.json",
//    "stack_path": "run_b/step3/rank0/stack.json", "is_print_compare_log": false}
//
//   MSPROBE_ASSIGN_OR_RETURN(CompareInput input, ReadCompareInput("compare.json"));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::compare {

struct CompareInput {
  std::string target, golden;
  bool has_stack = false;  // a stack_path is given; the table then shows stacks only with -s
  bool print_log = true;
  std::vector<int64_t> ranks, steps;  // rank_id, step_id: only these are compared; empty: all
  // map_dict: {"input", "x"} pairs input_float32_1.npy with x_float32_1.npy.
  std::vector<std::pair<std::string, std::string>> renamed;
};

// What the file is read for. A graph may be made of one dump: bench_path is optional then.
enum class InputUse : uint8_t { kCompare, kGraph };

// Keys: npu_path, bench_path, stack_path; in 1.0 these are npu_json_path, bench_json_path and
// stack_json_path. For MindSpore also rank_id, step_id, common and map_dict; `common` says that the
// paths are folders of .npy files, which is recognised without it. Errors: kNotFound;
// kInvalidConfig with the line: no JSON, an unknown key, a value of another type, a path that is
// missing, a stack_path that is not the stack.json beside npu_path.
Result<CompareInput> ParseCompareInput(std::string_view json, std::string_view path,
                                       InputUse use = InputUse::kCompare);
Result<CompareInput> ReadCompareInput(const std::string& path, InputUse use = InputUse::kCompare);

}  // namespace msprobe::compare
