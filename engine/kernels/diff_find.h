// Finds the indices that Diff names. The pass over memory notes only the chunks in which they are;
// these chunks are searched again here.
#pragma once

#include "engine/kernels/chunk_pair.h"
#include "engine/kernels/diff.h"
#include "engine/kernels/diff_node.h"

namespace msprobe::kernels {

// Fills first_index, worst_index and the values there. `node` is of the whole tensors of `count`
// values, not all of them equal.
void FindIndices(const ChunkPairReader& reader, const DiffNode& node, PairKind kind, int64_t count,
                 Diff* diff);

}  // namespace msprobe::kernels
