// A YAML file of name lists, as support_wrap_ops.yaml is one: categories, each with a list of
// names.
//
//   functional:
//     - conv1d
//     - conv2d
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

using NameLists = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Categories in file order. Errors: kNotFound; kInvalidConfig with path and line.
Result<NameLists> ReadNameLists(const std::string& path);

}  // namespace msprobe
