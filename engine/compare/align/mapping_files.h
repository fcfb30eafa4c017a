// Reads and checks the mapping files, without a look at any dump.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::compare {

// The lines "left: right" of a file, in their order.
using NamePairs = std::vector<std::pair<std::string, std::string>>;

// Reads a data mapping or a cell mapping. kInvalidConfig with the line for a value that is no text,
// and for a name that is there twice.
Result<NamePairs> ReadNamePairs(const std::string& path);

// One API and its counterpart. Where the file lists the values of a slot, the elements of the two
// lists are paired in order, and values of that slot that are not listed have no partner. Without
// lists, values keep their places.
struct ApiPair {
  struct List {
    bool given = false;
    NamePairs pairs;  // "0" -> "1"; parameters may be names
  };
  std::string target, golden;
  List inputs, outputs, parameters, gradients;
};
struct ApiMapping {
  std::vector<ApiPair> apis;
  // Mappings that were left out, and why: "abs.yaml:7: 2 of ms_args and 1 of pt_args".
  std::vector<Message> skipped;
};
// A list of mappings, or one mapping. Keys: ms_api, pt_api, {ms,pt}_{args,outputs,parameters,
// parameters_grad}; ms_output and pt_output mean the same as ms_outputs and pt_outputs.
Result<ApiMapping> ReadApiMapping(const std::string& path);

// A class, and how its children are renamed: "Block" -> {"attn.qkv", "self_attention.linear_qkv"}.
// The outermost class is called "TopLayer", in files of some generations "Cell".
using LayerRules = std::map<std::string, NamePairs>;
Result<LayerRules> ReadLayerMapping(const std::string& path);

}  // namespace msprobe::compare
