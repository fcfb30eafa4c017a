// What several ranks hold and should hold alike, such as the norms of a tensor-parallel model.
//
//   const std::string text = DifferingCopies(checkpoint, "target", {}, pool);
//   if (!text.empty()) Print(text);
#pragma once

#include <string>
#include <string_view>

#include "engine/base/threads.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/compare/compare.h"

namespace msprobe::checkpoint {

// "3 parameters of the target are not the same on all ranks that hold them, the first: NAME
// (mp_rank_01 against mp_rank_00: ...)"; "" when all are the same. One piece of each is in memory
// at a time and thread; those that options.max_pair_bytes has no room for are counted.
std::string DifferingCopies(const Checkpoint& checkpoint, std::string_view side,
                            const compare::CompareOptions& options, ThreadPool& pool);

}  // namespace msprobe::checkpoint
