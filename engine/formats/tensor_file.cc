#include "engine/formats/tensor_file.h"

#include <utility>

#include "engine/base/file.h"
#include "engine/formats/npy.h"
#include "engine/formats/pt.h"
#include "engine/formats/safetensors.h"

namespace msprobe {

Result<TensorFile> ReadTensorFile(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const std::string_view bytes = file.bytes();
  if (bytes.substr(0, 6) == "\x93NUMPY") return ReadNpy(std::move(file));
  // Before the pickle: a header of 128 bytes begins with its first byte, too.
  if (LooksLikeSafetensors(bytes)) return ReadSafetensorsTensor(std::move(file));
  if (bytes.substr(0, 2) == "PK" || bytes.substr(0, 1) == "\x80")
    return ReadPtTensor(std::move(file));
  return InvalidDump(path, 0)
      .Expected("a tensor file: .npy, .safetensors, or .pt as torch.save writes it")
      .Found(bytes.empty() ? "an empty file" : Excerpt(bytes, 16));
}

}  // namespace msprobe
