// The mapping flags of `msprobe compare` (mapping.h), applied to parameters of checkpoints, whose
// names have neither a class nor a call.
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
  std::map<std::string, std::string> names;  // target's name -> golden's name, where they differ
  std::vector<Message> notes;                // parts of the request that fit no name of the target
};

// A data mapping names whole parameters and wins over all else. Of a cell mapping, a key that is
// the path of the parameter's module wins ("net.fc" for net.fc.weight; a class may follow, as in
// "net.fc.Dense"); otherwise each key is replaced where it first occurs in the name. Then the
// renames are applied, one after the other. Errors: those of the files and expressions (mapping.h);
// kUnsupported for an api mapping or a layer mapping, because these need calls and classes.
Result<ParameterMapping> BuildParameterMapping(const compare::MappingRequest& request,
                                               const Checkpoint& target);

}  // namespace msprobe::checkpoint
