// The folder that ptdbg_ascend puts around a run, named by a tag and the version of the tool:
// "ptdbg_dump_v2.0". Scripts write the version down, and then the tool is updated.
#pragma once

#include <string>
#include <string_view>

namespace msprobe::dump {

bool IsTagFolder(std::string_view name);

// `path`; where it does not exist, and only because of the version in such a folder's name, the
// path below the one folder with that tag, which is logged.
//
//   ExistingTag("npu/ptdbg_dump_v2.0/rank0/dump.pkl");   // "npu/ptdbg_dump_v4.1/rank0/dump.pkl"
std::string ExistingTag(const std::string& path);

}  // namespace msprobe::dump
