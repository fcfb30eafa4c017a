// Reads any bytes as a pack of tensors: the first byte tells how many of the others are its log's.
// Checksums of headers are made right, so that what lies after them is reached.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/tensor_pack.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

void Put(std::string* bytes, size_t at, uint32_t checksum) {
  std::memcpy(bytes->data() + at, &checksum, sizeof(checksum));
}

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

void RepairChecksums(std::string* bytes) {
  using msprobe::formats::Crc32;
  for (size_t at = 0; at + 64 <= bytes->size(); at += 64) {
    const auto size = Get<uint32_t>(*bytes, at + 8);
    if (bytes->compare(at, 4, "TENS") == 0 && size >= 64 && size <= bytes->size() - at)
      Put(bytes, at + 4, Crc32(std::string_view(*bytes).substr(at + 8, size - 8)));
  }
  if (bytes->size() < 32) return;
  const size_t footer = bytes->size() - 32;
  const auto index = Get<uint64_t>(*bytes, footer);
  if (index <= footer)
    Put(bytes, footer + 16, Crc32(std::string_view(*bytes).substr(index, footer - index)));
}

}  // namespace

FUZZ_TARGET(pack) {
  static msprobe::MemoryFolder folder;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // 0: no log; 255: only a log's header is missing from the pack.
  const size_t log = bytes.size() * data[0] / 256;
  std::string pack_bytes(bytes.substr(0, bytes.size() - log));
  std::string log_bytes(bytes.substr(bytes.size() - log));
  if (data[0] % 8 != 7) {
    RepairChecksums(&pack_bytes);
    RepairChecksums(&log_bytes);
  }
  folder.Set("tensors.pack", pack_bytes);
  folder.Set("tensors.pack.log", log_bytes);
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
