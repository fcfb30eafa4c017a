// The flags of `msprobe compare` and `config_check` that say which names differ on purpose.
#pragma once

#include <string>

#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/checkpoint/parameter_mapping.h"
#include "engine/compare/align/mapping.h"

namespace msprobe::cli {

class MappingFlags {
 public:
  void Add(Flags& flags);
  // Adds only the flags that apply to names of parameters.
  void AddForParameters(Flags& flags);
  Result<compare::NameMapping> For(const Dump& target, const Dump& golden) const;
  // Bytes that For and Save need, and that the comparison needs for the mapping.
  uint64_t Memory(const Dump& target, const Dump& golden) const;
  Result<checkpoint::ParameterMapping> For(const checkpoint::Checkpoint& target) const;
  // With a layer mapping: writes the pairs that it gave to data_mapping_TIME.yaml in `folder`. The
  // result is the path of that file, "" when there is none.
  Result<std::string> Save(const std::string& folder, int rank,
                           const compare::Comparison& comparison) const;

 private:
  compare::MappingRequest Request() const;

  std::string api_, cell_, layer_, data_;
  std::vector<std::string> renames_;
  Flag api_flag_, cell_flag_, layer_flag_;
};

}  // namespace msprobe::cli
