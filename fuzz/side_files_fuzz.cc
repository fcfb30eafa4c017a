// Reads any bytes as stack.json, construct.json and weights.json beside a valid dump.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/dump/read/dump_file.h"
#include "engine/dump/read/side_files.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

// The names of these records also occur in the files of the corpus.
constexpr std::string_view kDump =
    R"({"task": "statistics", "level": "mix", "dump_data_dir": null, "data": {
"Functional.linear.0.forward": {"input_args":[],"input_kwargs":{},"output":[],"stack":"0"},
"Functional.linear.0.backward": {"input":[],"output":[]},
"Functional.relu.0.forward": {"input_args":[],"input_kwargs":{},"output":[]},
"Tensor.add.0.forward": {"input_args":[],"input_kwargs":{},"output":[]},
"Module.fc.Linear.forward.0": {"input_args":[],"input_kwargs":{},"output":[]}
}}
)";

size_t Touch(std::string_view text) {
  size_t sum = 0;
  for (const char c : text) sum += static_cast<unsigned char>(c);
  return sum;
}

// After an error the dump is not valid.
bool IsWhole(const msprobe::Status& status, const msprobe::MemoryFolder& folder) {
  if (!status.ok()) msprobe::CheckRefusal(status, folder.path());
  return status.ok();
}

}  // namespace

FUZZ_TARGET(side_files) {
  static msprobe::MemoryFolder folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"stack.json", "construct.json", "weights.json"}) folder.Set(name, text);
  size_t sum = 0;
  for (int kind = 0; kind < 3; ++kind) {
    msprobe::Dump dump;
    std::vector<std::string_view> stack_keys;
    msprobe::dump::DumpFileLayout layout;
    if (!msprobe::dump::ReadDumpFile("dump.json", kDump, &dump, &stack_keys, &layout).ok())
      std::abort();
    dump.folder = folder.path();
    if (!IsWhole(kind == 0   ? msprobe::dump::ReadStacks(stack_keys, &dump)
                 : kind == 1 ? msprobe::dump::ReadParents(&dump)
                             : msprobe::dump::ReadWeights(&dump),
                 folder))
      continue;
    for (const msprobe::Record& record : dump.records) {
      if (record.stack >= static_cast<int64_t>(dump.stacks.size())) std::abort();
      sum += Touch(record.parent);
    }
    for (const auto& stack : dump.stacks)
      for (const std::string_view frame : stack) sum += Touch(frame);
    for (const msprobe::Weight& weight : dump.weights)
      sum += Touch(weight.name) + Touch(weight.fingerprint);
  }
  return sum == SIZE_MAX ? 1 : 0;
}
