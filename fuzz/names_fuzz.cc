// Uses any bytes as each kind of mapping file in a comparison of two dumps: the result is a
// comparison, or a kInvalidConfig or kInvalidArgument error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "engine/compare/align/mapping.h"
#include "engine/compare/compare.h"
#include "engine/dump/read/reader.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace {

constexpr std::string_view kTarget =
    R"({"task": "statistics", "level": "mix", "framework": "mindspore", "dump_data_dir": null, "data": {
"Cell.net.fc.Dense.forward.0": {"input_args":[{"type":"mindspore.Tensor","dtype":"Float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}],"input_kwargs":{},"output":[]},
"Functional.add.0.forward": {"input_args":[{"type":"mindspore.Tensor","dtype":"Float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}],"input_kwargs":{},"output":[{"type":"mindspore.Tensor","dtype":"Float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}]}
}}
)";
constexpr std::string_view kGolden =
    R"({"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": {
"Module.net.fc.Linear.forward.0": {"input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}],"input_kwargs":{},"output":[]},
"Torch.add.0.forward": {"input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}],"input_kwargs":{},"output":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0}]}
}}
)";
constexpr std::string_view kTargetParents =
    R"({"Cell.net.fc.Dense.forward.0": null, "Functional.add.0.forward": "Cell.net.fc.Dense.forward.0"})";
constexpr std::string_view kGoldenParents =
    R"({"Module.net.fc.Linear.forward.0": null, "Torch.add.0.forward": "Module.net.fc.Linear.forward.0"})";
constexpr std::string_view kStacks =
    R"({"0": [["Functional.add.0.forward", "Torch.add.0.forward"],)"
    R"( ["File a.py, line 3, in construct, \n x = x + y"]]})";

msprobe::Dump OpenDump(const std::string& folder) {
  auto dump = msprobe::dump::ReadDump(folder);
  if (!dump.ok()) std::abort();
  return std::move(*dump);
}

}  // namespace

FUZZ_TARGET(names) {
  static msprobe::MemoryFolder folder;
  const std::string target = folder.path() + "/target", golden = folder.path() + "/golden";
  static const bool written = [] {
    for (const bool first : {true, false}) {
      const std::string side = first ? "target/" : "golden/";
      folder.Set(side + "dump.json", first ? kTarget : kGolden);
      folder.Set(side + "construct.json", first ? kTargetParents : kGoldenParents);
      folder.Set(side + "stack.json", kStacks);
    }
    return true;
  }();
  (void)written;
  folder.Set("names.yaml", {reinterpret_cast<const char*>(data), size});
  const std::string file = folder.path() + "/names.yaml";
  for (const msprobe::compare::MappingRequest& request :
       {msprobe::compare::MappingRequest{.api_file = file},
        {.cell_file = file},
        {.layer_file = file},
        {.data_file = file}}) {
    msprobe::Dump left = OpenDump(target), right = OpenDump(golden);
    auto mapping = msprobe::compare::BuildMapping(request, left, right);
    if (!mapping.ok()) {
      const auto code = mapping.status().code();
      if (code != msprobe::ErrorCode::kInvalidConfig &&
          code != msprobe::ErrorCode::kInvalidArgument)
        std::abort();
      continue;
    }
    const auto result = msprobe::compare::Compare(std::move(left), std::move(right),
                                                  {.mapping = std::move(*mapping)});
    if (!result.ok() && result.status().code() != msprobe::ErrorCode::kInvalidArgument)
      std::abort();
    if (result.ok() && msprobe::compare::DataMappingYaml(*result).empty()) std::abort();
  }
  return 0;
}
