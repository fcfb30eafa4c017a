// The number of the step in the path of a dump.
//
//   StepInPath("runs/a/step3/rank0/dump.json");   // 3
//   StepInPath("runs/a/dump.json");               // -1
#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe::dump {

// Of the innermost folder "step<N>"; -1: there is none.
int32_t StepInPath(std::string_view path);

}  // namespace msprobe::dump
