// Replicas: parts of the model of which each rank saves its own copy, such as the norms of a
// tensor-parallel model. All copies should be equal.
//
//   const Message text = DifferingReplicas(checkpoint, "target"_t, {}, pool);
//   if (!text.empty()) Print(text.Shown());
#pragma once

#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/base/threads.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/compare/compare.h"

namespace msprobe::checkpoint {

// "3 parameters of the target are not the same on all ranks that hold them, the first: NAME
// (mp_rank_01 against mp_rank_00: ...)"; empty when all are equal. Each thread has one pair in
// memory at a time. Pairs beyond options.max_pair_bytes are not read; the sentence says how many.
Message DifferingReplicas(const Checkpoint& checkpoint, const Message& side,
                          const compare::CompareOptions& options, ThreadPool& pool);

}  // namespace msprobe::checkpoint
