#include "engine/compare/judge/moving_operations.h"

#include <algorithm>
#include <iterator>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// In alphabetical order. Operations that choose by comparing (relu, amax, sort) are not listed: the
// device decides whether they take 0 or -0. Neither is embedding, which rounds when max_norm is
// given. tests/compare/test_moving_operations.py calls each listed operation in PyTorch and
// compares its result with its inputs.
constexpr std::string_view kMovingOperations[] = {
    "as_strided",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_tensors",
    "broadcast_to",
    "cat",
    "channel_shuffle",
    "chunk",
    "clone",
    "column_stack",
    "concat",
    "concatenate",
    "contiguous",
    "copy",
    "detach",
    "diag",
    "diag_embed",
    "diagonal",
    "diagonal_scatter",
    "dsplit",
    "dstack",
    "expand",
    "expand_as",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "gather",
    "getitem",
    "hsplit",
    "hstack",
    "index_copy",
    "index_fill",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "moveaxis",
    "movedim",
    "narrow",
    "pad",
    "permute",
    "pixel_shuffle",
    "pixel_unshuffle",
    "ravel",
    "repeat",
    "repeat_interleave",
    "reshape",
    "reshape_as",
    "roll",
    "rot90",
    "select",
    "select_scatter",
    "setitem",
    "slice_scatter",
    "split",
    "split_with_sizes",
    "squeeze",
    "stack",
    "swapaxes",
    "swapdims",
    "t",
    "take",
    "take_along_dim",
    "tensor_split",
    "tile",
    "transpose",
    "tril",
    "triu",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
    "vsplit",
    "vstack",
    "where",
};
static_assert(std::is_sorted(std::begin(kMovingOperations), std::end(kMovingOperations)));

}  // namespace

bool MovesData(std::string_view api) {
  if (api.starts_with("Distributed.")) return false;  // gather returns what other ranks gave
  return std::binary_search(std::begin(kMovingOperations), std::end(kMovingOperations),
                            BaseApi(api));
}

}  // namespace msprobe::compare
