// A table of functions that compute the golden results of operations which have no float64, or
// which only some devices have: a YAML file with a line for each API, `NPU.npu_swiglu:
// own.py:swiglu`. The file of Python is beside the table.
//
//   MSPROBE_ASSIGN_OR_RETURN(const ReferenceTable table, ReadReferenceTable("table.yaml"));
//   const auto found = table.find("NPU.npu_swiglu");
//   if (found != table.end()) text = found->second.file;   // "own.py"
#pragma once

#include <functional>
#include <map>
#include <string>

#include "engine/base/status.h"

namespace msprobe::replay {

struct Reference {
  std::string file;      // path of a file that exists
  std::string function;  // a name in it
};
using ReferenceTable = std::map<std::string, Reference, std::less<>>;  // by "NPU.npu_swiglu"

// Errors: kNotFound; kInvalidConfig with path and line, also for a file that is not there or is not
// in the folder of the table.
Result<ReferenceTable> ReadReferenceTable(const std::string& path);

}  // namespace msprobe::replay
