// What a config.json says of the pre-check: its section `run_ut`, or `acc_check` of msprobe 26,
// such as {"run_ut": {"white_list": ["linear"], "black_list": [], "precision": 14}}.
//
//   MSPROBE_ASSIGN_OR_RETURN(const CheckConfig config, ReadCheckConfig("config.json"));
//   const bool chosen = config.white_list.empty() || config.white_list.contains("linear");
#pragma once

#include <set>
#include <string>

#include "engine/base/status.h"

namespace msprobe::accuracy {

struct CheckConfig {
  using Names = std::set<std::string, std::less<>>;
  Names white_list, black_list;  // base names of APIs, "linear"; an empty white_list: all
  // APIs whose integer results may differ by one, in addition to those of standards.yaml.
  Names quantization_api_list;
  std::string error_data_path;  // folder; "": that of the results
  int precision = 14;           // decimals of numbers in the files, 0 to 20
};

// Errors: kNotFound; kInvalidConfig with path and line: for a key that is not known, a value of the
// wrong type, and for the pre-check over a network, which is not supported.
Result<CheckConfig> ReadCheckConfig(const std::string& path);

}  // namespace msprobe::accuracy
