// Reads any bytes as a pack of tensors: the first byte tells how many of the others are its log's.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/formats/tensors/tensor_pack.h"
#include "fuzz/memory_folder.h"
#include "fuzz/tensor_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static msprobe::MemoryFolder folder;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // 0: no log; 255: only a log's header is missing from the pack.
  const size_t log = bytes.size() * data[0] / 256;
  folder.Set("tensors.pack", bytes.substr(0, bytes.size() - log));
  folder.Set("tensors.pack.log", bytes.substr(bytes.size() - log));
  const std::string path = folder.path() + "/tensors.pack";
  const auto pack = msprobe::formats::TensorPack::Open(folder.path(), "tensors.pack");
  if (!pack.ok()) {
    msprobe::CheckRefusal(pack.status(), path);
    return 0;
  }
  for (const msprobe::formats::PackEntry& entry : pack->entries()) {
    if (pack->Find(entry.name) != &entry) std::abort();
    const auto tensor = pack->Read(entry);
    if (tensor.ok()) {
      msprobe::CheckTensor(*tensor);
    } else {
      msprobe::CheckRefusal(tensor.status(), path);
    }
  }
  return 0;
}
