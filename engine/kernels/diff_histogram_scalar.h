// CountDifferences in the simplest way: the definition that the vector kernel is tested against.
#pragma once

#include "engine/kernels/chunk_pair.h"
#include "engine/kernels/diff_histogram_node.h"
#include "engine/kernels/diff_scalar.h"

namespace msprobe::kernels {

// Adds the values of a chunk, whose first one has the index `first` in the tensor.
inline void ChunkDifferencesScalar(const ChunkPair& c, int64_t first, DiffHistogram* h) {
  const PairKind kind = PairKindOf(c.t, c.g);
  for (int64_t v = 0; v < c.n; ++v) AddPair(PairAt(c.t, c.tp, c.g, c.gp, v), kind, first + v, h);
}

}  // namespace msprobe::kernels
