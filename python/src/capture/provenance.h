// What the header of a dump says of the run: versions, device, seed state, source revision.
//
//   session.SetProvenance(ProvenanceJson());     // {"python": "3.11.7", "torch": "2.13.0", ...}
#pragma once

#include <string>

namespace msprobe::capture {

// A JSON object of texts, numbers and booleans. Asks only what is loaded already: nothing is
// imported, no device is woken, no random number drawn. Never leaves a Python error set.
std::string ProvenanceJson();

}  // namespace msprobe::capture
