#include "engine/formats/tensors/tensor_file.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/safetensors.h"
#include "engine/formats/tensors/tensor_pack.h"

namespace msprobe::formats {
namespace {

// The pack of the path's folder, if there is no such file and the pack has a tensor of that name.
std::optional<TensorPack> PackWith(const std::string& path) {
  const std::string folder = DirectoryName(path);
  if (Exists(path) || !Exists(JoinPath(folder, kPackName))) return std::nullopt;
  Result<TensorPack> pack = TensorPack::Open(folder, kPackName);
  if (!pack.ok() || pack->Find(BaseName(path)) == nullptr) return std::nullopt;
  return *std::move(pack);
}

bool IsPt(std::string_view bytes) { return bytes.starts_with("PK") || bytes.starts_with("\x80"); }

}  // namespace

bool LooksLikeTensorFile(std::string_view bytes) {
  return LooksLikeNpy(bytes) || IsPt(bytes) || LooksLikeSafetensors(bytes) ||
         LooksLikeTensorPack(bytes);
}

bool IsInPack(const std::string& path) { return PackWith(path).has_value(); }

Result<TensorFile> ReadTensorFile(const std::string& path) {
  if (const std::optional<TensorPack> pack = PackWith(path))
    return pack->Read(*pack->Find(BaseName(path)));
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return ReadTensorFile(std::move(file));
}

Result<TensorFile> ReadTensorFile(MappedFile file, Verify verify) {
  const std::string_view bytes = file.bytes();
  if (LooksLikeNpy(bytes)) return ReadNpy(std::move(file));
  // Before the pickle: a header of 128 bytes begins with its first byte, too.
  if (LooksLikeSafetensors(bytes)) return ReadSafetensorsTensor(std::move(file));
  if (IsPt(bytes)) return ReadPtTensor(std::move(file), {}, verify);
  if (LooksLikeTensorPack(bytes)) {
    return Unsupported("{}: expected one tensor, found a pack of tensors"_t(file.path()))
        .Hint("msprobe unpack " + file.path());
  }
  return InvalidDump(file.path(), 0)
      .Expected("a tensor file: .npy, .safetensors, or .pt as torch.save writes it"_t)
      .Found(bytes.empty() ? "an empty file"_t : Excerpt(bytes, 16));
}

bool FitsStorage(DType dtype, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides, int64_t offset, int64_t elements) {
  const Result<int64_t> bytes = CheckedByteSize(dtype, shape);
  if (shape.size() != strides.size() || !bytes.ok() || *bytes > kMaxTensorBytes || offset < 0)
    return false;
  if (*bytes == 0) return offset <= elements;
  int64_t last = offset;  // that it reaches, counted from the storage's first
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t reach = 0;
    if (strides[d] < 0 || __builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return false;
  }
  return last < elements;
}

}  // namespace msprobe::formats
