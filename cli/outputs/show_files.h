// `msprobe show` for paths that are no dump: tensor files, tables, the files beside a dump, a
// folder with several dumps.
#pragma once

#include <string>

#include "cli/command_line/console.h"
#include "cli/outputs/show_tensor.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// false: the path is a dump, or reading it as one will give the right error. Files are recognised
// by content; only csv tables by their name.
Result<bool> ShowOtherFile(const std::string& path, const ShowTensorOptions& options, Console& out);

}  // namespace msprobe::cli
