// Elements of a tensor as text, selected by a slice as in NumPy: "0:2,:,3".
//
//   MSPROBE_ASSIGN_OR_RETURN(TensorSlice slice, TensorSlice::Parse("0:2,:,-1"));
//   MSPROBE_ASSIGN_OR_RETURN(SlicedView part, slice.Apply(view));
//   AppendElements(&text, part.view(), 1000);                   // [[1.0, 2.5], [0.0, -inf]]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {

// A view that holds its own shape and strides.
struct SlicedView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;
  TensorView view() const {
    return {.data = data,
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data(),
            .strides = strides.data()};
  }
};

class TensorSlice {
 public:
  // One item for each dimension, with commas between them. A number selects that index and drops
  // the dimension. start:stop:step selects a range; each part may be left out, negative ones count
  // from the end, a negative step goes backwards. "..." stands for all dimensions in between.
  // Dimensions without an item are taken whole. Errors: kInvalidArgument.
  static Result<TensorSlice> Parse(std::string_view text);

  // Ranges are cut at the extent, as NumPy does. kInvalidArgument: an index out of range, or more
  // items than dimensions.
  Result<SlicedView> Apply(const TensorView& view) const;

 private:
  struct Item {
    bool is_index = false, is_ellipsis = false;
    std::optional<int64_t> start, stop;  // of an index: start is the index
    int64_t step = 1;
  };
  struct Range {
    int64_t start, count, step;
  };
  static Range RangeOf(const Item& item, int64_t extent);

  std::string text_;
  std::vector<Item> items_;
};

// Nested lists as Python prints them, with a line break before each inner list; at most `most`
// elements, then "... and 5 more". Each number has the fewest digits that read back as the same
// number of the dtype.
void AppendElements(std::string* out, const TensorView& view, int64_t most);
// One element of a tensor; `p` is its address.
void AppendElement(std::string* out, DType dtype, const void* p);

}  // namespace msprobe
