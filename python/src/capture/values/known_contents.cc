#include "capture/values/known_contents.h"

#include <string_view>

namespace msprobe::capture {

KnownContents::Key KnownContents::KeyOf(const TensorView& view, KnownNumbers::Asked asked) {
  const auto bytes = static_cast<size_t>(view.numel()) * DTypeSize(view.dtype);
  const std::string_view content(static_cast<const char*>(view.data), bytes);
  return {.digest = kernels::DigestContent(content),
          .shape = HashOfShape(view),
          .dtype = view.dtype,
          .asked = asked};
}

KnownContents::Slot& KnownContents::SlotOf(const Key& key) {
  if (slots_.empty()) slots_.resize(kSlots);
  return slots_[(key.digest.low ^ key.shape) % kSlots];
}

}  // namespace msprobe::capture
