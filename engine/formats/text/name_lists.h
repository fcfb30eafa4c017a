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

// Lays a user's list over the shipped one: its names are added; a name with a minus in front
// ("- -gelu") is taken out. Case does not matter in its categories. A name to take out that the
// shipped list does not have is added with its minus, so that the caller's warning about unknown
// names shows it.
NameLists MergeNameLists(NameLists shipped, const NameLists& own);

}  // namespace msprobe::formats
