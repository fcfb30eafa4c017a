// How a session writes when a front of an older tool asked for it: the lines of torch_npu.hooks and
// ptdbg_ascend, and the files of elements beside them. docs/dialects.md says how they look.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace msprobe::dump {

enum class PklDialect : uint8_t {
  kHooks,     // torch_npu.hooks: "7_Functional_relu_forward_input.0", a number for each line
  kNumbered,  // ptdbg_ascend 0.1: the same text, a number for each call, forward or backward
  kCounted,   // ptdbg_ascend 1 to 5: "Functional_relu_0_forward_input.0"
};

enum class PklMode : uint8_t { kAll, kList, kRange, kStack, kApiList, kApiStack };

enum class PklData : uint8_t {
  kNone,
  kInLines,   // elements stand in the line: ten and three statistics, or all
  kNpy,       // a .npy file for each tensor
  kStorages,  // the same with the elements as they lie in memory, and no lines
};

struct PklStyle {
  PklDialect dialect = PklDialect::kCounted;
  PklMode mode = PklMode::kAll;
  // Either `file` and `data_folder` (of .npy files) are given, or what they are made from when the
  // rank is known (pkl_place.h).
  std::string file, data_folder;
  std::string tag_folder, step_folder;  // "d/ptdbg_dump_v0.1"; "step3", or "" without steps
  std::string stem;                     // "api_stack_dump"
  PklData data = PklData::kNpy;
  bool sampled = true;         // kInLines
  int64_t sample_step = 1;     // kNumbered: of the middle of a tensor of more than 512 elements
  bool plain_values = true;    // numbers, tensors of bool and int, without dimensions or elements
  bool file_for_each = false;  // overflows: `file` is the folder where each gets its own
  bool raises = false;         // an overflow too many ends the program
  std::vector<std::string> scope;     // names as they stand in lines
  std::vector<std::string> api_list;  // kApiList: parts of names, whatever their case

  bool has_values() const { return mode != PklMode::kStack; }
  bool has_stacks() const {
    return dialect != PklDialect::kHooks && mode != PklMode::kAll && mode != PklMode::kApiList;
  }
  // Then "input" of a backward call is what it produced.
  bool swaps_backward() const { return dialect != PklDialect::kCounted; }
};

}  // namespace msprobe::dump
