// One tensor read from a file of any format: .npy, .pt or .safetensors. The content decides which
// it is, never the name.
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

// A tensor and the memory of its elements (usually the mapped file; copies share it). The data is
// aligned to the element size. Where the format allows it, pages of the file are loaded only when
// they are read.
struct TensorFile {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;       // elements, as many as shape; never negative
  const void* data = nullptr;         // element (0, ..., 0)
  std::optional<uint32_t> crc32;      // set by Verify::kByCaller: what Crc32(view()) must be
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

// An expanded tensor can be larger than its storage; beyond this limit it is refused.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;

// Whether the tensor lies within a storage of this many elements, and is not expanded beyond the
// limit. False also for negative extents and strides, and when their numbers differ.
bool FitsStorage(DType dtype, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, int64_t offset, int64_t elements);

// Who verifies the elements against the checksum in a .pt file. A caller that reads all elements
// anyway saves a pass over memory when it verifies them itself.
enum class Verify : uint8_t { kByReader, kByCaller };

// Errors: kNotFound; kIo; kInvalidDump with file and byte offset (damaged, truncated, hostile, or
// none of the formats); kUnsupported (a well-formed file whose content is not one plain tensor, for
// example object arrays or sparse tensors). "dump_tensor_data/Torch.add.0.forward.output.0.pt" may
// also lie in a pack of that folder: a file of the name goes before it.
Result<TensorFile> ReadTensorFile(const std::string& path);
// Whether the path names no file, and a tensor in the pack of its folder.
bool IsInPack(const std::string& path);
Result<TensorFile> ReadTensorFile(MappedFile file, Verify verify = Verify::kByReader);

// Whether a file begins as one of the formats does (any zip and any pickle may be a .pt), or as a
// pack (tensor_pack.h), which ReadTensorFile refuses as it has many tensors.
bool LooksLikeTensorFile(std::string_view bytes);

inline constexpr int kMaxTensorDimensions =
    64;  // as in PyTorch and NumPy 2: more is refused when reading

}  // namespace msprobe::formats
