// The folder that ptdbg_ascend puts around a run, named by a tag and the version of the tool:
// "ptdbg_dump_v2.0". A script names the folder with the version, and later versions of the tool
// write another one.
#pragma once

#include <string>
#include <string_view>

namespace msprobe::dump {

bool IsTagFolder(std::string_view name);

// `path` when it exists. Otherwise, when exactly one folder has the same tag with another version:
// the path with that folder in it, which is logged.
//
//   ExistingTag("npu/ptdbg_dump_v2.0/rank0/dump.pkl");   // "npu/ptdbg_dump_v4.1/rank0/dump.pkl"
std::string ExistingTag(const std::string& path);

}  // namespace msprobe::dump
