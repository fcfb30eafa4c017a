// Reads any bytes as each kind of file in a checkpoint: a file of torch.save with Python objects,
// the file of one Megatron rank, the .metadata of torch.distributed.checkpoint, an index of shards.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kShard =
    "\x38\0\0\0\0\0\0\0{\"a.w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
    "\0\0\x80\x3f\0\0\0\0"sv;

void Open(const std::string& path) {
  const msprobe::Result<msprobe::checkpoint::Checkpoint> checkpoint =
      msprobe::checkpoint::Checkpoint::Open(path);
  if (!checkpoint.ok()) {
    if (checkpoint.status().code() == msprobe::ErrorCode::kInternal) std::abort();
    return;
  }
  for (const msprobe::checkpoint::CheckpointTensor& tensor : checkpoint->tensors()) {
    const msprobe::Result<int64_t> size = msprobe::CheckedByteSize(tensor.dtype, tensor.shape);
    if (!size.ok() || *size > 1 << 20) continue;
    const msprobe::Result<msprobe::formats::TensorFile> data = checkpoint->Read(tensor);
    if (data.ok()) msprobe::CheckTensor(*data);
  }
}

}  // namespace

FUZZ_TARGET(checkpoint) {
  static msprobe::MemoryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with("PK")) {
    folder.Set("model.pt", bytes);
    Open(folder.path() + "/model.pt");
    for (const char* rank : {"mp_rank_00", "mp_rank_01"})
      folder.Set("megatron/" + std::string(rank) + "/model_optim_rng.pt", bytes);
    Open(folder.path() + "/megatron");
  } else if (bytes.starts_with("\x80")) {
    folder.Set("dcp/.metadata", bytes);
    Open(folder.path() + "/dcp");
  } else {
    folder.Set("indexed/model-1.safetensors", kShard);
    folder.Set("indexed/model.safetensors.index.json", bytes);
    Open(folder.path() + "/indexed");
    folder.Set("tracked/iter_0000012/mp_rank_00/model_optim_rng.pt", kShard);
    folder.Set("tracked/latest_checkpointed_iteration.txt", bytes);
    Open(folder.path() + "/tracked");
  }
  return 0;
}
