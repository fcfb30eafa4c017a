// Parameters that are called differently on purpose: the mapping flags of dumps, for names that
// have neither a class nor a call.
//
//   MSPROBE_ASSIGN_OR_RETURN(ParameterMapping names,
//                            BuildParameterMapping({.renames = {"s/^module\\.//"}}, target));
//   CompareCheckpoints(target, golden, options, names);
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/compare/align/mapping.h"

namespace msprobe::checkpoint {

struct ParameterMapping {
  std::map<std::string, std::string> names;  // the target's -> the golden's; those that change
  std::vector<std::string> notes;            // what names nothing in the target
};

// A data mapping names whole parameters, and wins. Of a cell mapping a key that is the module's
// path wins ("net.fc" of net.fc.weight, also with a class behind it: "net.fc.Dense"); else each
// fragment is replaced where it first stands in the name. Renames follow, one after the other.
// Errors: those of the files and expressions (mapping.h); kUnsupported for an api or layer mapping,
// which go by calls and classes.
Result<ParameterMapping> BuildParameterMapping(const compare::MappingRequest& request,
                                               const Checkpoint& target);

}  // namespace msprobe::checkpoint
