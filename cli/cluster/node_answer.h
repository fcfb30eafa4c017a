// What a node sent of the ranks that it has compared: the file of its part, and tables. Nothing of
// it is trusted: sizes, names and the ranks are checked before a file is written.
//
//   MSPROBE_ASSIGN_OR_RETURN(std::vector<compare::ComparedPair> compared,
//                            TakeAnswer("answer", pairs, "out"));   // tables are now in out/
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {

// A node keeps its files when they have more: then its ranks are not compared.
inline constexpr uint64_t kMostBytesOfAnswer = uint64_t{1} << 30;

// `file`: a line of JSON, {"code": 0, "said": "", "folder": "/tmp/a", "bytes": 7, "files":
// [["step0/compare_result_rank1_20260102030405.csv", 7]]}, and the contents of the files. `pairs`:
// what the node was asked for, all of it and nothing else. `folder` takes the tables. Errors:
// kUnsupported where the node could not compare, with what it said; kInvalidDump for an answer of
// another form, and nothing is written.
Result<std::vector<compare::ComparedPair>> TakeAnswer(const std::string& file,
                                                      std::span<const DumpPair> pairs,
                                                      const std::string& folder);

// `file`: as above; the files are those of FilesToCopy(path) that the node has, and each name is
// its number there, "0". "elements": true where those of its tensors lie beside the dump. The copy
// is written. Errors: as above.
Result<compare::RankCopy> TakeCopy(const std::string& file, const std::string& path,
                                   const std::string& folder, const std::string& place);

// Whether a node may write a table of this name: "compare_result_rank1_TIME.csv", also in a folder
// "step3".
bool IsNameOfTable(std::string_view name);

}  // namespace msprobe::cli
