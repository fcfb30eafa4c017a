// Reads any bytes as a dump of torch_npu.hooks or ptdbg_ascend: the result is a valid dump, or
// a typed error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/dump/pkl/pkl_file.h"
#include "engine/dump/read/pkl_trace.h"
#include "engine/dump/tensors/storage_folder.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/kernels/stats.h"
#include "fuzz/target.h"

namespace {

// The text that `parse` prints ends with a whole line.
void Trace(std::string_view text) {
  const auto trace = msprobe::dump::TraceText("dump.pkl", text, "");
  if (!trace.ok()) {
    if (trace.status().code() != msprobe::ErrorCode::kInvalidDump) std::abort();
  } else if (!trace->text.empty() && trace->text.back() != '\n') {
    std::abort();
  }
}

// Uses any text as the file name of a storage, and reads the view that the name describes.
void View(std::string_view text) {
  static const std::vector<float> storage(64);
  const auto name = msprobe::dump::ParseStorageName(text);
  if (!name) return;
  msprobe::formats::TensorFile tensor{.dtype = msprobe::DType::kFloat32,
                                      .shape = {static_cast<int64_t>(storage.size())},
                                      .strides = {1},
                                      .data = storage.data()};
  constexpr int64_t kMost = 1 << 20;  // elements; with stride 0 many of them are the same one
  if (!msprobe::dump::ViewStorage(*name, text, &tensor).ok() || tensor.view().numel() > kMost)
    return;
  if (msprobe::kernels::ComputeStats(tensor.view()).nan != 0) std::abort();
}

}  // namespace

FUZZ_TARGET(pkl) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Trace(text);
  View(text);
  msprobe::Dump dump;
  dump.path = "dump.pkl";
  std::vector<int32_t> segments;
  const msprobe::Status status = msprobe::dump::ReadPklLines("dump.pkl", text, &dump, &segments);
  if (!status.ok()) {
    if (status.code() != msprobe::ErrorCode::kInvalidDump || status.message().empty()) std::abort();
    return 0;
  }
  if (segments.size() != dump.records.size()) std::abort();
  size_t next = 0, bytes = 0;
  for (size_t r = 0; r < dump.records.size(); ++r) {
    const msprobe::Record& record = dump.records[r];
    if (record.first_leaf != next || record.stack >= static_cast<int32_t>(dump.stacks.size()))
      std::abort();
    next += record.leaf_count;
    for (const msprobe::Leaf& leaf : dump.LeavesOf(record)) {
      if (leaf.record != r) std::abort();
      const std::string_view parts[] = {leaf.name,     leaf.value, leaf.max,
                                        leaf.norm,     leaf.shape, leaf.dtype,
                                        leaf.checksum, record.api, record.name};
      for (const std::string_view part : parts) {
        for (const char c : part) bytes += static_cast<unsigned char>(c);
      }
      if (msprobe::dump::HasTensorData(leaf)) {
        const auto tensor = msprobe::dump::ReadTensorData(dump, leaf);
        if (tensor.ok() && tensor->shape.size() != tensor->strides.size()) std::abort();
      }
    }
  }
  if (next != dump.leaves.size() || bytes == static_cast<size_t>(-1)) std::abort();
  return 0;
}
