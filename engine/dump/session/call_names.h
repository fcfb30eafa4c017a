// Numbers the calls of a step, and names their entries by them.
//
//   CallNames calls;
//   calls.Configure(config);
//   std::string forward, backward;
//   calls.Name("Functional.relu.", calls.Next(counter), /*is_module=*/false, &forward, &backward);
//   // "Functional.relu.0.forward", "Functional.relu.0.backward"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/dump/config/config.h"

namespace msprobe::dump {

class CallNames {
 public:
  void Configure(const Config& config);
  void NewStep();       // numbers begin at 0 again
  void BeginPklFile();  // the numbers of ptdbg_ascend 0.1 begin at 0 with each file

  // The next call number. `counter`: an index that the caller chooses, another one for each API and
  // module.
  int64_t Next(uint32_t counter);
  // Whether the counter has given a number in this step.
  bool Called(uint32_t counter) const { return counter < numbers_.size() && numbers_[counter] > 0; }
  void ReturnCallNumber(uint32_t counter);  // Next returns the last number again

  // The entry names of call number `call` of `stem` ("Functional.relu."), and of its gradients.
  void Name(const std::string& stem, int64_t call, bool is_module, std::string* forward,
            std::string* backward);
  // RenamesGradients: whether a gradient's entry is renamed when it arrives. NameGradients: the new
  // name; call it once for each backward call.
  bool RenamesGradients() const { return pkl_ == PklDialect::kNumbered; }
  std::string NameGradients(const std::string& backward);

 private:
  std::optional<PklDialect> pkl_;  // names as .pkl files have them
  std::vector<int64_t> numbers_;   // by counter
  int64_t hook_calls_ = 0;         // PklDialect::kNumbered: forward and backward calls so far
};

}  // namespace msprobe::dump
