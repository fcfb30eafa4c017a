#include "engine/formats/tensors/npy.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

FUZZ_TARGET(npy) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  const msprobe::Result<msprobe::formats::TensorFile> tensor = msprobe::formats::ReadNpy(path);
  if (tensor.ok()) {
    msprobe::CheckTensor(*tensor);
  } else {
    msprobe::CheckRefusal(tensor.status(), path);
  }
  return 0;
}
