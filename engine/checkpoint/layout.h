// Finds out by content which layout of checkpoints a path has.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::checkpoint {

struct CheckpointLayout {
  enum class Kind { kNone, kFiles, kIndexed, kMegatron, kDistributed };
  Kind kind = Kind::kNone;
  std::string folder;              // the folder of the files; for Megatron iter_0000100
  std::vector<std::string> files;  // kFiles: their paths; kIndexed: the name of the index
};

// Errors: kNotFound; kIo; kInvalidDump for a latest_checkpointed_iteration.txt that names nothing.
Result<CheckpointLayout> FindLayout(const std::string& path);

}  // namespace msprobe::checkpoint
