// Tells the kind of a file from its first bytes, never from its name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe::dump {

enum class FileKind : uint8_t {
  kOther,     // also an empty file
  kDumpJson,  // an object with the member "data" or "dump_data_dir": msprobe of any generation
  kPkl,       // one JSON list on each line: torch_npu.hooks and ptdbg_ascend
  kTensor,    // .npy, .pt, .safetensors
};

FileKind KindOf(std::string_view bytes);
// The same of a plain file in `folder`; kOther for links, devices and files that cannot be opened.
FileKind KindOfFileIn(const std::string& folder, std::string_view name);

}  // namespace msprobe::dump
