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
  std::string path;                 // the dump.json
  int64_t records = 0;              // kept in it: all that were whole
  uint64_t dropped_bytes = 0;       // of unfinished entries, in the three files together
  std::vector<std::string> closed;  // files that were open; empty: nothing had to be done
  std::vector<Message> missing;     // sentences on what the run had not written yet
  Status failed;                    // of RecoverDumps: why this dump was not closed
};

// `path` as for ReadDump. In dump.json, stack.json and construct.json the unfinished last entry is
// cut off and the closing braces are appended; names of calls that stack.json does not have yet are
// added there. Never changes a complete entry or a tensor file; a second call changes nothing. Do
// not call it while the run is alive. Errors: as ReadDump (damage other than truncation is
// reported, not repaired); kIo.
Result<RecoveredDump> RecoverDump(const std::string& path);

// Closes each dump below `path`, of all steps and ranks, in their order. If one dump cannot be
// closed, the others still are. Errors: kNotFound when there is no dump.
Result<std::vector<RecoveredDump>> RecoverDumps(const std::string& path);

}  // namespace msprobe::dump
