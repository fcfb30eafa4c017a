#include "engine/formats/tensors/pt.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

// Checksums are not verified: otherwise nearly every mutation would already fail there.
FUZZ_TARGET(pt) {
  static msprobe::MemoryFile memory;
  const std::string& path = memory.Set(data, size);
  const msprobe::Result<msprobe::formats::PtFile> file =
      msprobe::formats::ReadPt(path, {.verify_checksums = false});
  if (file.ok()) {
    for (const msprobe::formats::PtTensor& tensor : file->tensors)
      msprobe::CheckTensor(tensor.tensor);
  } else {
    msprobe::CheckRefusal(file.status(), path);
  }
  return 0;
}
