// Reads any bytes as a tensor file without a dump.json, alone and in a folder with a valid file:
// each row has its elements or its own error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/dump/tensors/tensor_data.h"
#include "engine/dump/tensors/tensor_folder.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kRight =
    "\x93NUMPY\x01\0\x45\0{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }           \n"
    "\0\0\x80\x3f"sv;

void ReadFolder(const std::string& path, std::string_view right) {
  const auto dump = msprobe::dump::ReadTensorFolder(path);
  if (!dump.ok()) {
    if (!right.empty()) std::abort();
    msprobe::CheckRefusal(dump.status(), path);
    return;
  }
  bool found = right.empty();
  for (const msprobe::Leaf& leaf : dump->leaves) {
    if (leaf.record >= dump->records.size()) std::abort();
    const auto tensor = msprobe::dump::ReadTensorData(*dump, leaf);
    if (tensor.ok()) {
      msprobe::CheckTensor(*tensor);
      found = found || leaf.name == right;
    } else {
      msprobe::CheckRefusal(tensor.status(), path.substr(0, path.rfind('/')));
    }
  }
  if (!found) std::abort();
}

}  // namespace

FUZZ_TARGET(tensor_folder) {
  static msprobe::MemoryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  folder.Set("tensors/right.npy", kRight);
  folder.Set("tensors/layer/any", bytes);
  ReadFolder(folder.path() + "/tensors", "right");
  ReadFolder(folder.path() + "/tensors/layer/any", "");
  return 0;
}
