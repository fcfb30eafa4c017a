// Reads any bytes as a dump file of CANN, and brings its tensors to the layouts without padding.
#include <cstdlib>

#include "engine/formats/tensors/ascend_dump.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(ascend_dump) {
  using namespace msprobe;
  static MemoryFile file;
  const std::string& path = file.Set(data, size);
  const auto dump = formats::ReadAscendDump(path);
  if (!dump.ok()) {
    CheckRefusal(dump.status(), path);
    return 0;
  }
  for (const formats::AscendTensor& tensor : dump->tensors) {
    if (!tensor.problem.empty()) continue;
    CheckTensor(tensor.elements);
    if (!tensor.layout) continue;
    const LayoutShape from{*tensor.layout, tensor.elements.shape};
    LayoutShape original;
    if (IsPadded(from.layout)) {
      const auto found = OriginalOf(from, tensor.original_shape);
      if (found.ok()) original = *found;
    }
    for (int i = 0; i < kAscendLayoutCount; ++i) {
      const auto plan = PlanLayout(from, static_cast<AscendLayout>(i), original, 16);
      if (!plan.ok() || plan->elements > 1 << 20) continue;
      const size_t bytes = DTypeSize(tensor.elements.dtype);
      if (plan->from_elements != tensor.elements.view().numel()) std::abort();
      std::string out(static_cast<size_t>(plan->elements) * bytes, '\0');
      ConvertLayout(*plan, tensor.elements.data, bytes, out.data());
    }
  }
  return 0;
}
