// The provenance of the run, for the header of a dump: versions, device, seed, source revision.
//
//   session.SetProvenance(ProvenanceJson(true)); // {"python": "3.11.7", "torch": "2.13.0", ...}
#pragma once

#include <string>

namespace msprobe::capture {

// A JSON object of texts, numbers and booleans. Has no effect on the program: no module is imported,
// no device is initialised, no random number is drawn. Never leaves a Python error set.
// `gradients_before`: the dump says what lay in .grad when a backward pass began.
std::string ProvenanceJson(bool gradients_before);

}  // namespace msprobe::capture
