// Runs of MindSpore whose code ran compiled at a level that sees no call there: their dumps may
// agree and say nothing about the model.
//
//   const Message note = DescribeCompiledRuns("a/step0/rank0", "b/step0/rank0");   // or ""
#pragma once

#include <string>

#include "engine/base/messages/message.h"

namespace msprobe::compare {

Message DescribeCompiledRuns(const std::string& target, const std::string& golden);

}  // namespace msprobe::compare
