// Tells a baseline of another program from a program that computes something wrong.
//
//   if (const Message why = WhyAnotherProgram(comparison); !why.empty()) GiveUp(why);
#pragma once

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::live {

// Why the two dumps are no two runs of one program: another framework, other names or shapes of
// weights, weights of another dtype, hardly a call in common. "": they are.
Message WhyAnotherProgram(const compare::Comparison& comparison);

}  // namespace msprobe::live
