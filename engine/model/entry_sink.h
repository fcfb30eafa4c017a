// A consumer of entries: the writer of dump.json, the writer of pkl files, the search against a
// reference dump. All of them take the same typed entry.
#pragma once

#include "engine/base/status.h"
#include "engine/model/entry.h"

namespace msprobe {

class EntrySink {
 public:
  virtual ~EntrySink() = default;
  // `entry` is whole and keeps its content; the sink keeps no reference to it.
  virtual Status Write(const Entry& entry) = 0;
};

}  // namespace msprobe
