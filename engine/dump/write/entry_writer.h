// Writes the entries of a session to the files of one rank and step, in one dialect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/entry_sink.h"

namespace msprobe::dump {

class EntryWriter : public EntrySink {
 public:
  // Remembers that `child` ran inside `parent` ("" is null).
  virtual Status AppendConstruct(std::string_view child, std::string_view parent) = 0;
  // The first call with this stack. Returns the stack's number, for the entry's member "stack".
  virtual Result<int64_t> AddStack(std::string_view child, std::vector<std::string> frames) = 0;
  // A later call with stack `id`.
  virtual Status NoteStack(int64_t id, std::string_view child) = 0;

  virtual Status Close() = 0;   // completes the files; a second call has no effect
  virtual Status Reopen() = 0;  // continues after Close()
  // Close(), and closes the file descriptors: some disks report failures only then.
  virtual Status Finish() = 0;
};

}  // namespace msprobe::dump
