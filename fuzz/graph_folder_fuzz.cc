// Reads any bytes as the files of a MindSpore graph's dump, separated by 0x1e: the name of a tensor
// file, the order of execution, the .ir, statistic.csv, mapping.csv, the elements.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/dump/graphs/graph_folder.h"
#include "engine/dump/graphs/graph_names.h"
#include "engine/dump/tensors/tensor_data.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

void CheckName(std::string_view name) {
  const auto file = msprobe::dump::ParseGraphFile(name);
  if (!file) return;
  if (file->type.empty() || file->name.empty() || file->slot < 0) std::abort();
  const auto op = msprobe::dump::ParseGraphOperator(file->type, file->name);
  if (op.number < 0 || op.stem.empty() || op.stem.size() > file->name.size()) std::abort();
}

void Read(const std::string& path) {
  const auto dump = msprobe::dump::ReadGraphIteration(path);
  if (!dump.ok()) {
    msprobe::CheckRefusal(dump.status(), path);
    return;
  }
  for (const msprobe::Leaf& leaf : dump->leaves) {
    if (leaf.record >= dump->records.size()) std::abort();
    const auto tensor = msprobe::dump::ReadTensorData(*dump, leaf);
    if (tensor.ok()) msprobe::CheckTensor(*tensor);
  }
}

}  // namespace

FUZZ_TARGET(graph_folder) {
  static msprobe::MemoryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<std::string_view> parts = msprobe::Split(bytes, '\x1e');
  parts.resize(6);
  CheckName(parts[0]);
  const std::string value = "Add.Default_Add-op0.0.0.5.output.0.DefaultFormat.Float32.npy";
  for (const std::string iteration : {"rank_0/net/0/0/", "rank_0/net/0/1/"}) {
    folder.Set(iteration + value, parts[5]);
    folder.Set(iteration + "1.npy", parts[5]);
    folder.Set(iteration + "mapping.csv", parts[4]);
  }
  folder.Set("rank_0/execution_order/ms_execution_order_graph_0.csv", parts[1]);
  folder.Set("rank_0/graphs/ms_output_trace_code_graph_0.ir", parts[2]);
  folder.Set("rank_0/net/0/1/statistic.csv", parts[3]);
  Read(folder.path() + "/rank_0/net/0/0");
  Read(folder.path() + "/rank_0/net/0/1");
  return 0;
}
