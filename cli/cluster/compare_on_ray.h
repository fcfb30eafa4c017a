// `msprobe compare --ray ADDRESS`: the nodes of a cluster of Ray compare the ranks of two runs, and
// each node those whose dumps it has. The report is that of one process that compares all ranks.
//
//   RayComparison wanted{.address = "auto", .target = "new", .golden = "good", .folder = "out"};
//   MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, CompareOnRay(wanted, console));
//   const PartsToMerge parts{.input = "out", .output = "out"};
//   MSPROBE_ASSIGN_OR_RETURN(const int code, MergeParts(parts, std::move(all), console));
//
// Each rank is a part of the comparison (compared_part.h) with a file of its own in the folder, so
// that `msprobe compare --part` can compare later what no node could, and `msprobe merge_result`
// reports on all of them again. A rank that could not be compared says why. Ranks that are joined
// are copied from the nodes (copy_on_ray.h), and compared by the caller.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/part_flag.h"
#include "cli/outputs/table_flags.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {

struct RayComparison {
  std::string address, target, golden;
  std::string folder;                // takes parts and tables
  PairOptions selection = {};        // which ranks and steps
  std::string selection_flags = {};  // the same as it was typed, for the hint: " --rank 0-3"
  // Of each node's command line: all but ranks and folder.
  std::vector<std::string> words = {};
  // Of ranks that are joined: what their parts keep of the flags, and what is wrong with these.
  FlagsOfParts flags = {};
  std::function<Status(const std::vector<DumpPair>&)> check = {};
  TableFlags table = {};  // of them those of the tables
};

// All parts. Errors: kUnsupported without Ray or a cluster; kInvalidArgument for fewer than two
// ranks; those of PairDumps, and of `check`.
Result<compare::ComparedPart> CompareOnRay(const RayComparison& wanted, Console& out);

}  // namespace msprobe::cli
