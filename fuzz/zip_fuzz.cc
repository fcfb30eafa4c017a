#include "engine/formats/archive/zip.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(zip) {
  const std::string_view archive(reinterpret_cast<const char*>(data), size);
  const msprobe::Result<msprobe::formats::ZipReader> zip =
      msprobe::formats::ZipReader::Open(archive, "fuzz");
  if (!zip.ok()) {
    msprobe::CheckRefusal(zip.status(), "fuzz");
    return 0;
  }
  uint64_t stored = 0;
  for (const msprobe::formats::ZipEntry& entry : zip->entries()) {
    stored += entry.stored_size;
    if (zip->Find(entry.name) != &entry) std::abort();
    const msprobe::Result<msprobe::formats::ZipContent> content = zip->Read(entry, 1 << 20);
    if (content.ok() && content->bytes.size() != entry.size) std::abort();
    if (!content.ok()) msprobe::CheckRefusal(content.status(), "fuzz");
  }
  if (stored > size) std::abort();  // two entries would share a byte
  return 0;
}
