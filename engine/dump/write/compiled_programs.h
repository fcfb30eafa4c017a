// Programs of which level L1 and mix see nothing, because they ran as one compiled graph
// (mindspore.jit). coverage.json names them under "modules_not_observed".
//
//   for (const std::string& program : CompiledPrograms("step0/rank0")) Print(program);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::dump {

inline Message RanCompiled() { return "it ran compiled (mindspore.jit)"_t; }

// "train_step (train.py:12)"; none where the folder has no coverage.json that can be read.
std::vector<std::string> CompiledPrograms(const std::string& folder);

}  // namespace msprobe::dump
