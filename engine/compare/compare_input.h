// compare.json of msprobe 1.0 and 8: which two dumps are compared.
//
//   {"npu_path": "run_b/step3/rank0/dump.json", "bench_path": "run_a/step3/rank0/dump.json",
//    "stack_path": "run_b/step3/rank0/stack.json", "is_print_compare_log": false}
//
//   MSPROBE_ASSIGN_OR_RETURN(CompareInput input, ReadCompareInput("compare.json"));
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe {

struct CompareInput {
  std::string target, golden;
  bool has_stack = false;  // a stack_path is given: whether stacks are shown is then -s
  bool print_log = true;
};

// Keys are npu_path, bench_path, stack_path or, as 1.0 has them, npu_json_path, bench_json_path,
// stack_json_path. Errors: kNotFound; kInvalidConfig with the line: no JSON, a key that is not
// known or of another mode, a value of another type, a path that is missing, a stack_path that is
// not the stack.json beside npu_path.
Result<CompareInput> ParseCompareInput(std::string_view json, std::string_view path);
Result<CompareInput> ReadCompareInput(const std::string& path);

}  // namespace msprobe
