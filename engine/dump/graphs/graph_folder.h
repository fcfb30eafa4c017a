// Dumps that MindSpore itself writes of a compiled graph (MINDSPORE_DUMP_CONFIG): one folder for
// each iteration, <path>/rank_0/<net>/<graph>/<iteration>.
//
//   for (const GraphIteration& found : FindGraphIterations("dump")) {  // "dump/rank_0/net/0/2"
//     MSPROBE_ASSIGN_OR_RETURN(Dump dump, ReadGraphIteration(found.path));
//   }
//
// A record is one operator: "Default/fc1-Dense/MatMul.0.forward". Gradients end in ".backward",
// updates of parameters in ".optimizer"; "Parameter.fc1_weight" is a parameter, or an input of the
// graph, after the iteration.
#pragma once

#include <string>
#include <vector>

#include "engine/model/table.h"

namespace msprobe::dump {

// Whether the folder holds files of one iteration: .npy files named as MindSpore names them, or a
// statistic.csv with its header.
bool IsGraphIteration(const std::string& folder);

struct GraphIteration {
  std::string path;
  int rank = -1;       // of "rank_0"; -1: no folder of the path says it
  int iteration = -1;  // -1: the folder's name is no number
};
// `path`: the iteration itself, or one of the four folders around it. If several graphs of a
// network ran in one iteration, the folder of the graph with the lowest number stands for all of
// them. Links are not followed.
std::vector<GraphIteration> FindGraphIterations(const std::string& path);

// The operators in the order of execution, as "execution_order" of the rank has it; without that
// file, in the order of their times. Operators that ran several times in the iteration go on
// counting. The elements stay in their files; a file that cannot be read costs only its own value.
// Errors: those of listing the folder, and of a statistic.csv that is no table.
Result<Dump> ReadGraphIteration(const std::string& path);

}  // namespace msprobe::dump
