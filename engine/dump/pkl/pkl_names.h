// Names in the dumps of torch_npu.hooks and ptdbg_ascend.
//
//   ParsePklName("7_Functional_relu_forward_input.0");   // torch_npu.hooks, ptdbg_ascend 0.1
//   ParsePklName("Tensor___add___1_backward_output");    // ptdbg_ascend 1 to 5
//   ParsePklName("Functional.conv2d.0.forward.input.0"); // ptdbg_ascend 6
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/table.h"

namespace msprobe::dump {

enum class PklPart : uint8_t { kInput, kOutput, kStack };

struct PklName {
  std::string_view stem;  // up to the part, without the separator: "7_Functional_relu_forward"
  std::string_view type;  // "Functional"; "" for a name that a user chose
  std::string_view op;    // "relu"
  int64_t number = -1;    // in front of the name; -1: none
  int64_t call = -1;      // the number after the operation; -1: none
  Direction direction = Direction::kForward;
  PklPart part = PklPart::kInput;
  std::string_view rest;  // what follows the part: ".0.1"
  char separator = '_';
  // As msprobe spells it: "Functional.relu".
  std::string Api() const;
};

// nullopt: none of these forms.
std::optional<PklName> ParsePklName(std::string_view name);

// "Functional_relu_forward" for "7_Functional_relu_forward". Line numbers of two dumps do not
// agree.
std::string_view WithoutLineNumber(std::string_view name);

}  // namespace msprobe::dump
