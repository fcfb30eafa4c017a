// stack.json and construct.json: where each record was called from, and inside which module. Both
// may be absent, and both may be cut short by a kill; whole lines are kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/model/memory_budget.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Reads <folder>/stack.json, when it is there, into dump->stacks and Record::stack. `stack_keys`
// has for each record the key of its group, or "". A key wins over the names that a group lists.
// Errors: kInvalidDump when the file is damaged; kUnsupported when `memory`, which the dump shares,
// is too small.
Status ReadStacks(const std::vector<std::string_view>& stack_keys, Dump* dump,
                  MemoryShare* memory = nullptr);

// Reads <folder>/construct.json, when it is there, into Record::parent and
// Dump::micro_steps.
Status ReadParents(Dump* dump, MemoryShare* memory = nullptr);

// Beside "dump.json" "weights.json"; beside "npu_dump.pkl", of which a folder may hold several,
// "npu_dump.weights.json".
std::string WeightsFileOf(std::string_view dump_file);

// Reads that file, when it is there, into dump->weights.
Status ReadWeights(Dump* dump);

// Reads <folder>/signatures.json, when it is there, into dump->signatures.
Status ReadSignatures(Dump* dump);

// Reads where compiled code was entered from <folder>/coverage.json, when it is there, into
// dump->compiled.
Status ReadCompiledCode(Dump* dump);

}  // namespace msprobe::dump
