// The mapping files themselves, without dumps: what they say, checked.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::compare {

// "left: right" in file order.
using NamePairs = std::vector<std::pair<std::string, std::string>>;

// Data and cell mappings. kInvalidConfig with the line for anything but texts, and for a name
// twice.
Result<NamePairs> ReadNamePairs(const std::string& path);

// One API and its counterpart. A list that is absent leaves the values where they are; one that is
// there pairs its elements, and what it does not name has no partner.
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
  std::vector<std::string> skipped;  // "abs.yaml:7: 2 of ms_args and 1 of pt_args", left out
};
// A list of mappings, or one mapping. Keys: ms_api, pt_api, {ms,pt}_{args,outputs,parameters,
// parameters_grad}; ms_output and pt_output are the same as with s.
Result<ApiMapping> ReadApiMapping(const std::string& path);

// Class -> children of it: "Block" -> {"attn.qkv", "self_attention.linear_qkv"}. The outermost
// class is "TopLayer"; older files call it "Cell".
using LayerRules = std::map<std::string, NamePairs>;
Result<LayerRules> ReadLayerMapping(const std::string& path);

}  // namespace msprobe::compare
