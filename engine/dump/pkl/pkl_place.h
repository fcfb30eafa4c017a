// Where lines go.
//
//   MSPROBE_ASSIGN_OR_RETURN(const PklStyle placed, PlacePklFiles(style, rank));
//   // tag_folder "d/ptdbg_dump_v0.1", stem "api_stack_dump", rank 3:
//   // file "d/ptdbg_dump_v0.1/rank3/api_stack_dump.pkl", data_folder ".../rank3/api_stack_dump"
#pragma once

#include <optional>

#include "engine/base/status.h"
#include "engine/dump/config/pkl_style.h"

namespace msprobe::dump {

// Fills `file` and `data_folder`. With a tag_folder: in the folder of the rank (0 in a run that is
// not distributed), which is this process's alone; another process of the same rank has
// "rank<pid>". What an earlier run left there is moved into a tag folder of its own,
// "ptdbg_dump_v0.1_1", and one line says so. Without: `file` as it is, for ranks from 1 on with
// "_rank<r>" behind its stem, since processes do not share a file. Errors: kIo.
Result<PklStyle> PlacePklFiles(PklStyle style, std::optional<int> rank);

}  // namespace msprobe::dump
