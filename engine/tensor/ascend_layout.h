// The orders in which an Ascend device stores the elements of a tensor, and the way from one to
// another. The names are those of CANN.
//
//   const LayoutShape stored{AscendLayout::kNC1HWC0, {2, 1, 4, 5, 16}},
//       wanted{AscendLayout::kNCHW, {2, 3, 4, 5}};
//   MSPROBE_ASSIGN_OR_RETURN(const LayoutPlan plan, PlanLayout(stored, wanted.layout, wanted, 16));
//   ConvertLayout(plan, data.data(), sizeof(float), out.data());  // plan.shape is {2, 3, 4, 5}
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

enum class AscendLayout : uint8_t {
  kND,         // any rank, in the order of its dimensions
  kNCHW,       // images: number, channel, height, width
  kNHWC,       //
  kHWCN,       //
  kNC1HWC0,    // the channel is cut into blocks of C0; the last block is padded with zeros
  kFractalZ,   // weights of convolutions: [C1 H W, N1, 16, C0]; number and channel are padded
  kFractalNZ,  // matrices: [..., W1, H1, 16, W0]; both of the last dimensions of ND are padded
  kNCDHW,      // volumes: depth is one more dimension
  kNDC1HWC0,
};
inline constexpr int kAscendLayoutCount = 9;

std::string_view AscendLayoutName(AscendLayout layout);  // "FRACTAL_Z"
std::optional<AscendLayout> AscendLayoutFromName(std::string_view name);
bool IsPadded(AscendLayout layout);  // the shape in memory does not tell the extents of the tensor

// Elements in a block of channels where no file says how many: 32 of one byte, else 16.
int64_t DefaultC0(size_t element_size);

struct LayoutShape {
  AscendLayout layout = AscendLayout::kND;
  std::vector<int64_t> shape;  // empty: not known
};

struct LayoutPlan {
  std::vector<int64_t> shape;               // of the result
  int64_t from_elements = 0, elements = 0;  // in memory, padding included
  bool padded = false;                      // the result has elements that the tensor has not
  // Address of element (i, j, k, l, m) of the tensor: the sum of an entry of each list. Lists of
  // unused axes have one entry, 0.
  struct Axis {
    std::vector<int64_t> from, to;
  };
  std::array<Axis, 5> axes;
};

// How to get from `from` to the layout `to`. `original` is the tensor in a layout without padding,
// and is needed where `from` is padded; ND, NCHW, ... are their own original. C0 of `from` is in
// its shape; `c0` is that of `to`. Matrices (FRACTAL_NZ) take any layout without padding as ND:
// their last two dimensions are the matrix. Errors: kInvalidArgument where shapes contradict each
// other, where the original shape is missing, and for two layouts of different kinds (NCHW and
// NCDHW). Needs memory for the extents of `from`: first check that its elements are there.
Result<LayoutPlan> PlanLayout(const LayoutShape& from, AscendLayout to, const LayoutShape& original,
                              int64_t c0);

// The original of a padded tensor whose shape is known, but not whether this is NCHW, NHWC or HWCN:
// the layout that fits `from`. Error: none fits, or several do and disagree.
Result<LayoutShape> OriginalOf(const LayoutShape& from, const std::vector<int64_t>& shape);

// `from` has plan.from_elements elements of 1, 2, 4, 8 or 16 bytes, `to` gets plan.elements.
// Padding becomes zero.
void ConvertLayout(const LayoutPlan& plan, const void* from, size_t element_size, void* to);

}  // namespace msprobe
