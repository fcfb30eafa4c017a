// Whether a tensor has the elements of another one in another order: its rows, columns or heads are
// moved, or it is transposed. The usual faults of converted checkpoints.
//
//   const Message text = DescribeReordering(ours.view(), theirs.view(), "h.0.attn.qkv.weight");
//   // "the rows are in another order: q, k, v of each head together in place of all q, all k,
//   //  all v (368 of 384 rows moved)"
#pragma once

#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/kernels/diff.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::checkpoint {

// Empty: there is no such order, or another element differs as well. Found by fingerprints of
// slices, and verified bit by bit. `name` tells whether three parts are queries, keys and values.
// Tensors of one dtype, of any strides; shapes may differ. Time: near linear in the number of
// elements.
Message DescribeReordering(const TensorView& target, const TensorView& golden,
                           std::string_view name);

// Whether the two may have the same elements, as far as their difference tells: the same norm. Most
// weights that differ do not.
bool MayBeReordered(const kernels::Diff& diff);

}  // namespace msprobe::checkpoint
