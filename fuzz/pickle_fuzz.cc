#include "engine/formats/tensors/pickle.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(pickle) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const msprobe::Result<msprobe::formats::PickleTree> tree =
      msprobe::formats::Unpickle(bytes, {.path = "fuzz", .max_nodes = 1 << 16});
  if (!tree.ok()) {
    msprobe::CheckRefusal(tree.status(), "fuzz");
    return 0;
  }
  size_t text = 0;
  for (uint32_t i = 0; i < tree->size(); ++i) {
    const msprobe::formats::PickleNode& node = (*tree)[i];
    if (node.offset >= size || node.depth > 256) std::abort();
    for (const uint32_t item : node.items) {
      if (item >= tree->size()) std::abort();
    }
    for (const char c : node.text) text += static_cast<unsigned char>(c);
    text += tree->DottedName(node).size();
  }
  return text == SIZE_MAX ? 1 : 0;
}
