#include "engine/formats/tensors/safetensors.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(safetensors) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  const auto tensors = msprobe::formats::SafetensorsFile::Open(path);
  if (!tensors.ok()) {
    msprobe::CheckRefusal(tensors.status(), path);
    return 0;
  }
  uint64_t bytes = 0;
  for (const msprobe::formats::SafetensorsEntry& entry : tensors->entries()) {
    if (tensors->Find(entry.name) != &entry) std::abort();
    const auto tensor = tensors->Read(entry);
    if (!tensor.ok()) std::abort();
    msprobe::CheckTensor(*tensor);
    bytes += entry.size;
  }
  if (bytes > size) std::abort();
  return 0;
}
