// A YAML file of values to leave out, as builtin_ignore_ops.yaml is one: which arguments and
// results of which API.
//
//   Distributed:
//     irecv:
//       input: [0, tensor]
//       output: all
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::formats {

// Positions and keyword names, or all of them.
struct IgnoredValues {
  bool all = false;
  std::vector<int64_t> positions;
  std::vector<std::string> names;

  bool empty() const { return !all && positions.empty() && names.empty(); }
  bool Has(int64_t position) const;
  bool Has(std::string_view name) const;
};

struct IgnoreRule {
  std::string prefix, api;  // "Distributed", "irecv"
  uint64_t line = 0;
  IgnoredValues input, output;
};

// In file order. Errors: kNotFound; kInvalidConfig with path and line.
Result<std::vector<IgnoreRule>> ReadIgnoreRules(const std::string& path);

}  // namespace msprobe::formats
