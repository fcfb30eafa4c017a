// Writes a Python script that executes one recorded call again and compares it with float64. The
// script needs PyTorch alone; the elements of its inputs are in a folder beside it.
//
//   const RecordedCall call = CallsOf(dump, {}).front();
//   MSPROBE_ASSIGN_OR_RETURN(const Reproducer made, WriteReproducer(dump, call, folder, {.seed =
//       7}));
//   made.script;  // "out/Functional.linear.0.backward.py"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/model/table.h"
#include "engine/replay/recorded_call.h"

namespace msprobe::replay {

enum class InputData : uint8_t { kStoredOrMade, kStored, kMade };

struct ReproducerOptions {
  bool backward = true;  // also the gradients, where the dump has the backward call
  InputData data = InputData::kStoredOrMade;
  uint64_t seed = 1234;  // of elements that are made from statistics
  int64_t iterations = 1;
  std::string limits;  // of the verdict, a Python dictionary
};

struct Reproducer {
  std::string script;  // paths
  std::string folder;  // "" when the call has no tensors
  int64_t stored = 0, made = 0;
};

// A text as a literal of Python, in ASCII: "it's" -> 'it\'s'.
std::string PythonLiteral(std::string_view text);

// Errors: the call cannot be executed (RecordedCall::skip, or its API), an input has no elements
// (kStored), and those of reading and writing files.
Result<Reproducer> WriteReproducer(const Dump& dump, const RecordedCall& call,
                                   const std::string& folder, const ReproducerOptions& options);

}  // namespace msprobe::replay
