// The provenance of the run, for the header of a dump: versions, device, seed, source revision.
//
//   // {"python": "3.11.7", "torch": "2.13.0", ...}
//   session.SetProvenance(ProvenanceJson({.device_type = "npu"}));
#pragma once

#include <string>

namespace msprobe::capture {

// What the recording knows of the run.
struct KnownOfRun {
  bool gradients_before = false;  // the dump says what lay in .grad when a backward pass began
  // Of the tensors that are recorded, "cpu" or "npu"; "": not known, the device that the process
  // uses.
  std::string device_type;
  std::string precision;  // PrecisionPolicy::Text, if the dump says it of each call; else ""
  std::string parallel;   // of ParallelJson
};

// A JSON object of texts, numbers and booleans. Has no effect on the program: no module is
// imported, no device is initialised, no random number is drawn. Never leaves a Python error set.
std::string ProvenanceJson(const KnownOfRun& run);

}  // namespace msprobe::capture
