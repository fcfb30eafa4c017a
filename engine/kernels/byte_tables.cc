#include "engine/kernels/byte_tables.h"

#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

struct Tables {
  std::array<std::array<float, 256>, kDTypeCount> byte{};
  std::array<float, 16> nibble{};
  Tables() {
    for (int d = 0; d < kDTypeCount; ++d) {
      const DType dtype = static_cast<DType>(d);
      if (DTypeSize(dtype) != 1 || dtype == DType::kFloat4E2M1X2) continue;
      for (int b = 0; b < 256; ++b) {
        const uint8_t bits = static_cast<uint8_t>(b);
        byte[d][b] = static_cast<float>(ElementToDouble(dtype, &bits));
      }
    }
    for (int b = 0; b < 16; ++b) nibble[b] = Float4E2M1ToFloat(static_cast<uint8_t>(b));
  }
};

const Tables& Get() {
  static const Tables tables;
  return tables;
}

}  // namespace

const float* ByteTable(DType dtype) { return Get().byte[static_cast<size_t>(dtype)].data(); }
const float* NibbleTable() { return Get().nibble.data(); }

}  // namespace msprobe::kernels
