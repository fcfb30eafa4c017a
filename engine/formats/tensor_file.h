// One tensor read from a file, whatever the format: .npy, .pt or .safetensors, told by content and
// never by name.
//
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t, ReadTensorFile("Tensor.add.0.forward.output.0.pt"));
//   Stats s = ComputeStats(t.view());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::formats {

// A tensor and the memory behind it (usually the mapped file; copies share it). The data are
// aligned to their element size. Reading is lazy where the format allows: pages are fetched when
// touched.
struct TensorFile {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;       // elements, as many as shape; never negative
  const void* data = nullptr;         // element (0, ..., 0)
  std::optional<uint32_t> crc32;      // what Crc32(view()) must be, when Verify::kByCaller left it
  std::shared_ptr<const void> owner;  // keeps `data` alive

  // Points into this object: valid while it lives and is not moved.
  TensorView view() const {
    return {.data = data,
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data(),
            .strides = strides.data()};
  }
};

// An expanded tensor can be larger than its storage; beyond this it is a bomb.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;

// Whether the tensor lies within a storage of that many elements, and is no bomb. Shapes and
// strides that are not as many, or negative, do not fit.
bool FitsStorage(DType dtype, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, int64_t offset, int64_t elements);

// Who checks the elements against the checksum that a .pt has of them. A caller that reads them all
// anyway saves a pass over memory.
enum class Verify : uint8_t { kByReader, kByCaller };

// Errors: kNotFound; kIo; kInvalidDump with file and byte offset (damaged, truncated, hostile, or
// none of the formats); kUnsupported (a well-formed file whose content is not one plain tensor, for
// example object arrays or sparse tensors).
Result<TensorFile> ReadTensorFile(const std::string& path);
Result<TensorFile> ReadTensorFile(MappedFile file, Verify verify = Verify::kByReader);

// Whether a file begins as one of the formats does (any zip and any pickle may be a .pt).
bool LooksLikeTensorFile(std::string_view bytes);

inline constexpr int kMaxTensorDimensions =
    64;  // as in PyTorch and NumPy 2: more is refused when reading

}  // namespace msprobe::formats
