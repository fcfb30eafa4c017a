// The provenance of the run, for the header of a dump: versions, device, seed, source revision.
//
//   session.SetProvenance(ProvenanceJson(true, "npu", "")); // {"python": "3.11.7", "torch": "2.13.0", ...}
#pragma once

#include <string>

namespace msprobe::capture {

// A JSON object of texts, numbers and booleans. Has no effect on the program: no module is imported,
// no device is initialised, no random number is drawn. Never leaves a Python error set.
// `gradients_before`: the dump says what lay in .grad when a backward pass began.
// `device_type`: of the tensors that are recorded, "cpu" or "npu"; "": not known, the device that the process uses.
// `parallel`: of ParallelJson.
std::string ProvenanceJson(bool gradients_before, const std::string& device_type,
                           const std::string& parallel);

}  // namespace msprobe::capture
