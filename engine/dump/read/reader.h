// Opens a dump of any generation; the content tells its dialect.
#pragma once

#include <string>
#include <vector>

#include "engine/model/memory_budget.h"
#include "engine/model/read_options.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// `path`: a dump.json (or debug.json), the folder that holds it (rank0, rank, proc123), or a step
// folder with exactly one such folder. Reads stack.json and construct.json beside it when they are
// there. A dump of a killed run is read as far as whole lines go: complete is false and note says
// what is missing. Errors: kNotFound; kInvalidDump with file and byte offset; kInvalidArgument when
// a folder holds several dumps; kUnsupported when the dump does not fit into `budget`, with
// the memory that it needs; kNotFound also when options.tensor_folder is no folder.
Result<Dump> ReadDump(const std::string& path, MemoryBudget* budget = nullptr,
                      const ReadOptions& options = {});

// The dump.json that ReadDump(path) would read. Same errors, as far as they are about the path.
Result<std::string> LocateDump(const std::string& path);

// A dump below a folder: there is one for each rank (and step).
struct DumpLocation {
  std::string path;  // .../dump.json
  int step = -1;     // -1: not below a step folder
  int rank = -1;     // -1: not distributed
  Status refused;    // for example a link in place of the dump; `path` is the folder
};
Result<std::vector<DumpLocation>> FindDumps(const std::string& path);

}  // namespace msprobe::dump
