// Closes the files of a run that was killed, so that tools which want complete JSON can read them.
//
//   MSPROBE_ASSIGN_OR_RETURN(RecoveredDump r, RecoverDump("runs/a/step0/rank0"));
//   Print("{} records kept, {} bytes of unfinished lines removed", r.records, r.dropped_bytes);
//   MSPROBE_ASSIGN_OR_RETURN(auto all, RecoverDumps("runs/a"));   // every step and rank
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::dump {

struct RecoveredDump {
  std::string path;                  // the dump.json
  int64_t records = 0;               // kept in it: all that were whole
  uint64_t dropped_bytes = 0;        // of unfinished entries, in the three files together
  std::vector<std::string> closed;   // files that were open; empty: nothing had to be done
  std::vector<std::string> missing;  // sentences: what the run did not get to write
  Status failed;                     // of RecoverDumps: why nothing was done to this one
};

// `path` as for ReadDump. In dump.json, stack.json and construct.json the unfinished last entry is
// cut off and the closing braces are appended; calls whose names had not reached stack.json yet are
// listed there. Never touches a whole entry or a tensor file; a second call changes nothing. Do not
// call it while the run is alive. Errors: as ReadDump (damage that is no truncation is reported,
// not repaired); kIo.
Result<RecoveredDump> RecoverDump(const std::string& path);

// Each dump below `path`, of all steps and ranks, in their order; one that cannot be closed keeps
// nobody from the others. Errors: kNotFound when there is none.
Result<std::vector<RecoveredDump>> RecoverDumps(const std::string& path);

}  // namespace msprobe::dump
