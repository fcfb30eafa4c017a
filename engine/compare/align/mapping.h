// Translates names that differ on purpose. The user gives mapping files of the older tools, or
// expressions (rename.h); a built-in table has MindSpore's and PyTorch's APIs.
//
//   MappingRequest request{.cell_file = "cells.yaml", .renames = {"s/encoder/backbone/"}};
//   MSPROBE_ASSIGN_OR_RETURN(NameMapping names, BuildMapping(request, target, golden));
//   Compare(std::move(target), std::move(golden), {.mapping = names});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/compare/model/compare_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

struct MappingRequest {
  std::optional<std::string> api_file;   // "": without a file, the built-in table alone
  std::optional<std::string> cell_file;  // "": without a file, paths are equal
  std::optional<std::string>
      layer_file;                    // "": without a file, paths are equal, classes need not be
  std::string data_file;             // "": none
  std::vector<std::string> renames;  // "s/from/to/"; one after the other
};

// The mapping of the names that the target has. Files are flat or nested YAML, see
// docs/howto/pair-names.md. When one dump is of MindSpore and the other of PyTorch, the built-in
// table of APIs applies too, whatever the request says. Errors: kNotFound; kInvalidConfig with file
// and line; kInvalidArgument for an expression that is wrong (with the position), for a request
// that names nothing in the target, and for a layer mapping of dumps without construct.json and
// stack.json.
Result<NameMapping> BuildMapping(const MappingRequest& request, const Dump& target,
                                 const Dump& golden);

// "target name: golden name" of each pair of a comparison, as a data mapping file.
std::string DataMappingYaml(const Comparison& comparison);

}  // namespace msprobe::compare
