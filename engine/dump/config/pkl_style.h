// How a session writes for a front of an older tool: pkl files as torch_npu.hooks and ptdbg_ascend
// wrote them, and the files of elements beside them. docs/older/dialects.md describes these files.
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
  kInLines,   // elements are in the line: all, or the first ten and three statistics
  kNpy,       // a .npy file for each tensor
  kStorages,  // a .npy file with the tensor's part of the storage, and no pkl file
};

struct PklStyle {
  PklDialect dialect = PklDialect::kCounted;
  PklMode mode = PklMode::kAll;
  // `file` is the pkl file, `data_folder` the folder of .npy files. Either both are given, or they
  // are made from the four members after them when the rank is known (pkl_place.h).
  std::string file, data_folder;
  std::string tag_folder, step_folder;  // "d/ptdbg_dump_v0.1"; "step3", or "" without steps
  std::string stem;                     // "api_stack_dump"
  PklData data = PklData::kNpy;
  bool sampled = true;                // kInLines: ten elements and three statistics, not all
  int64_t sample_step = 1;            // kNumbered: SampleElements keeps each sample_step-th element
  bool plain_values = true;           // false: numbers and the tensors of IsPlainTensor are omitted
  bool file_for_each = false;         // each overflow has its own pkl file, in the folder `file`
  bool raises = false;                // too many overflows end the program
  std::vector<std::string> scope;     // names as they are in lines
  std::vector<std::string> api_list;  // kApiList: parts of names, in upper or lower case

  bool has_values() const { return mode != PklMode::kStack; }
  bool has_stacks() const {
    return dialect != PklDialect::kHooks && mode != PklMode::kAll && mode != PklMode::kApiList;
  }
  // true: lines of a backward call name its results "input" and its arguments "output".
  bool swaps_backward() const { return dialect != PklDialect::kCounted; }
};

}  // namespace msprobe::dump
