// coverage.json: which of the operations of a step are in the dump, which are not, and why. It is
// written beside dump.json at every stop, for the whole step so far.
//
//   session.WriteBeside(kCoverageFile, CoverageJson(coverage));
//   MSPROBE_ASSIGN_OR_RETURN(Coverage coverage, ReadCoverage("step0/rank0/coverage.json"));
//   for (const Message& line : CoverageLines(coverage, 5)) Print(line.Shown());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::dump {

inline constexpr char kCoverageFile[] = "coverage.json";

// Calls of listed APIs, or of modules.
struct CallCounts {
  int64_t recorded = 0;  // have a record
  int64_t nested = 0;    // inside a call that is recorded (APIs only)
  int64_t ignored = 0;   // left out by the configuration
  int64_t traced = 0;    // made by a compiler while it traces: they have no numbers
  int64_t wrappers = 0;  // made by PyTorch's wrappers around compiled code (APIs only)
};

struct Coverage {
  struct Operation {
    std::string name;  // "aten::view"
    int64_t count = 0;
    Message reason;
  };
  struct Api {
    std::string name;  // "Torch.foo"
    Message reason;
  };

  // Where compiled code was entered. What it computes has no records.
  struct Compiled {
    std::string module;  // the innermost module that ran, "Module.fc.Linear"; "": none was known
    std::string line;    // the user's line that entered it first, "train.py:41 y = f(x)"; ""
  };

  CallCounts apis, modules;
  int64_t gradients = 0;          // backward calls that were recorded
  int64_t gradients_ignored = 0;  // left out by the task or the configuration
  int64_t gradients_missing = 0;  // expected, but they never came

  // Tensors that were recorded without being read again ("reuse"), and their bytes.
  int64_t reads_saved = 0, bytes_saved = 0;

  // How often the program waited for a device: because too many bytes were under way, and for a
  // tensor that could not be copied without waiting.
  int64_t waits_for_memory = 0, waits_for_copies = 0;

  // Level debug, where gradients are those of saved values.
  int64_t saves = 0, saves_refused = 0;  // values given to save(), and those it cannot record

  // The operations that the framework's dispatcher ran. Each counts once, under the first of these
  // members that fits. Operations inside an unobserved one are part of it and not counted again.
  bool counted = false;
  Message why_not_counted;              // when not counted
  int64_t recorded = 0;                 // the operation of a recorded call itself
  int64_t nested = 0;                   // inside the operation of a recorded call
  int64_t gradient = 0;                 // run by the autograd engine
  int64_t ignored = 0;                  // inside a call that the configuration leaves out
  int64_t compiled_regions = 0;         // times that compiled code was entered
  std::vector<Operation> not_observed;  // the most frequent first

  std::vector<Api> apis_not_observed;     // listed, present in the framework, and not observable
  std::vector<Api> modules_not_observed;  // of the model: why no call was seen
  std::vector<Compiled> compiled;         // one for each module

  int64_t not_observed_count() const;
};

std::string CoverageJson(const Coverage& coverage);

// Errors: kNotFound; kInvalidConfig with the line for a file that is damaged.
Result<Coverage> ReadCoverage(const std::string& path);

// What was recorded, in one sentence for a person: "92 API calls, 23 module calls, 113 gradients; 5
// operations were not observed, coverage.json lists them".
Message CoverageSentence(const Coverage& coverage);
// More sentences, at most `most` kinds of operations that were not observed.
std::vector<Message> CoverageLines(const Coverage& coverage, size_t most);

}  // namespace msprobe::dump
