// The numbers of small tensors that were read lately, by their bytes. A small activation is output
// of one call, input of the next ones, in- and output of modules; a weight is read by its layer,
// its optimizer and the weights of the next step. To digest its bytes takes a fifth of what its
// statistics and its sketch take, and no change of the memory is missed, whoever makes it.
//
//   KnownContents contents;
//   if (KnownContents::Fits(view))
//     numbers = contents.Get(view, asked, [&] { return Measure(view); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/values/known_numbers.h"
#include "engine/kernels/content_digest.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// Needs the GIL.
class KnownContents {
 public:
  static constexpr size_t kMostBytes = 1 << 16;

  static bool Fits(const TensorView& view) {
    const size_t bytes = static_cast<size_t>(view.numel()) * DTypeSize(view.dtype);
    return bytes > 0 && bytes <= kMostBytes && view.IsContiguous();
  }

  // The numbers of a view that fits: those that are known of equal bytes of the same dtype and
  // shape, else those that `read()` returns. Valid until the next call.
  template <typename Read>
  const KnownNumbers::Numbers& Get(const TensorView& view, KnownNumbers::Asked asked, Read&& read) {
    const Key key = KeyOf(view, asked);
    Slot& slot = SlotOf(key);
    if (slot.is_empty || slot.key != key) slot = {false, key, read()};
    return slot.numbers;
  }

 private:
  struct Key {
    kernels::ContentDigest digest;
    uint64_t shape = 0;
    DType dtype = DType::kFloat32;
    KnownNumbers::Asked asked;
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    bool is_empty = true;
    Key key;
    KnownNumbers::Numbers numbers;
  };
  static constexpr size_t kSlots = 2048;  // half a megabyte

  static Key KeyOf(const TensorView& view, KnownNumbers::Asked asked);
  Slot& SlotOf(const Key& key);

  std::vector<Slot> slots_;  // empty until the first tensor comes
};

}  // namespace msprobe::capture
