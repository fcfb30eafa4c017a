// Where a process writes its pkl file and its .npy files.
//
//   MSPROBE_ASSIGN_OR_RETURN(const PklStyle placed, PlacePklFiles(style, rank));
//   // tag_folder "d/ptdbg_dump_v0.1", stem "api_stack_dump", rank 3:
//   // file "d/ptdbg_dump_v0.1/rank3/api_stack_dump.pkl", data_folder ".../rank3/api_stack_dump"
#pragma once

#include <optional>

#include "engine/base/status.h"
#include "engine/dump/config/pkl_style.h"

namespace msprobe::dump {

// Fills `file` and `data_folder`. Processes never share a file.
// With a tag_folder: both are in the folder of the rank (rank0 in a run that is not distributed).
// When another process already writes there, this process gets the folder "rank<pid>". The files
// of an earlier run in that folder are moved to a new tag folder, "ptdbg_dump_v0.1_1", which is
// logged.
// Without a tag_folder: `file` is as given; for ranks from 1 on "_rank<r>" is added to its stem.
// Errors: kIo.
Result<PklStyle> PlacePklFiles(PklStyle style, std::optional<int> rank);

}  // namespace msprobe::dump
