// How the modules of one rank are called in the golden. A stage of a pipeline counts its layers
// from 0, a rank its experts; wrappers put words in front. What a parameter holds tells which one
// it is.
//
//   const ModuleNames names(own, golden);    // weights.json of the rank, and of the golden
//   names.Of("layers.0.fc");                 // "layers.2.fc"
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/dump/read/weights_file.h"

namespace msprobe::compare::layouts {

class ModuleNames {
 public:
  ModuleNames() = default;
  // Only contents that the golden has once tell: biases of zeros say nothing.
  ModuleNames(const std::vector<StepWeight>& own, const std::vector<StepWeight>& golden);

  // What the user says goes before what contents tell: patterns of own names, and the golden's.
  void Declare(std::vector<std::pair<std::string, std::string>> modules);

  // The golden's path of a module or parameter of this rank, both without wrappers.
  std::string Of(std::string_view path) const;

  // What stands in front of the names: "layers.0" of this rank, "layers.2" of the golden.
  const std::map<std::string, std::string, std::less<>>& renamed() const { return renamed_; }

 private:
  std::map<std::string, std::string, std::less<>> renamed_;
  std::vector<std::pair<std::string, std::string>> declared_;
};

}  // namespace msprobe::compare::layouts
