// Code that a compiler made (torch.compile) in one of the two runs: what it computes has no records
// there, so the calls of the other run that stand for it have no partner. The code is compared at
// its borders: what goes into the module around it, and what comes out.
//
//   FindCompiledCalls(&comparison);   // aligned, not yet classified
//   for (const Message& text : DescribeCompiledCalls(comparison)) Print(text.English());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Marks each call without a partner that the other run has inside compiled code
// (Comparison::kCompiled): it ran in a module that enters such code there, or, where such code was
// entered outside of all modules, in no module that the other run recorded.
void FindCompiledCalls(Comparison* comparison);

// The compiled code of a run that is entered in the module of this name, "Module.fc.Linear"; "": in
// no module. Null: there is none.
const CompiledCode* CompiledCodeIn(const Dump& dump, std::string_view module);
// The same of the module or of the innermost one around it.
const CompiledCode* CompiledCodeAround(const Dump& dump, std::string_view module);

// Whether a compiled graph of MindSpore handed over the results of this Cell, or their gradients:
// nothing else is recorded of such a call, and its code cannot be recorded at level L1 or mix.
bool IsOfCompiledGraph(const Dump& dump, const Record& record);

// "down2 (Down) is compiled code in the target (torch.compile): 9 calls that the golden made there
// are compared at its borders alone", one for each module.
std::vector<Message> DescribeCompiledCalls(const Comparison& comparison);

}  // namespace msprobe::compare
