// Reads any bytes as each kind of mapping file, and as an expression: the result is a mapping, or
// an error that says where the input is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/compare/align/mapping_files.h"
#include "engine/compare/align/rename.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace {

void Check(const msprobe::Status& status) {
  if (!status.ok() && status.code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
}

}  // namespace

FUZZ_TARGET(mapping) {
  static msprobe::MemoryFile file;
  const std::string& path = file.Set(data, size);
  Check(msprobe::compare::ReadNamePairs(path).status());
  Check(msprobe::compare::ReadApiMapping(path).status());
  Check(msprobe::compare::ReadLayerMapping(path).status());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto rename = msprobe::compare::Rename::Parse(text.substr(0, 200));
  if (rename.ok()) {
    rename->Apply("Module.backbone.0.attn");
  } else if (rename.status().code() != msprobe::ErrorCode::kInvalidArgument) {
    std::abort();
  }
  return 0;
}
