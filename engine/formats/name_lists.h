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

namespace msprobe::formats {

using NameLists = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Categories in file order. Errors: kNotFound; kInvalidConfig with path and line.
Result<NameLists> ReadNameLists(const std::string& path);

// A user's own list over a shipped one: its names are added, one with a minus in front ("- -gelu")
// is taken out. Case does not matter in its categories. What is not there to be taken out is added
// as it stands, so that whoever looks for it says so.
NameLists MergeNameLists(NameLists shipped, const NameLists& own);

}  // namespace msprobe::formats
