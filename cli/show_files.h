// `msprobe show` of what is no dump: tensor files, tables, the files beside a dump, a folder of
// several dumps.
#pragma once

#include <string>

#include "cli/console.h"
#include "cli/show_tensor.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// false: a dump, or something that reading it as one will name. Told by content; only
// comma-separated tables are told by their name.
Result<bool> ShowOtherFile(const std::string& path, const ShowTensorOptions& options, Console& out);

}  // namespace msprobe::cli
