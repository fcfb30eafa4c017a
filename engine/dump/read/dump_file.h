// dump.json itself: header, entries, closing braces. Large files are cut at entry lines and the
// pieces parsed in parallel; the result is the same as reading from front to back, which is also
// what happens when the layout is not one of ours.
#pragma once

#include <string_view>
#include <vector>

#include "engine/model/memory_budget.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Where the parts of the file are; what `recover` needs to close it.
struct DumpFileLayout {
  size_t keep = 0;  // behind the last whole entry, or behind the '}' of "data" when that is there
  bool data_closed = false;  // the '}' of "data" is there
  bool root_closed = false;  // so is the last one
  size_t dropped = 0;        // bytes of an unfinished entry
};

// Fills everything of `dump` that dump.json knows: header fields, records, leaves, arena, complete,
// note. Views point into `text`. `stack_keys` gets one element a record: its "stack" member.
// `mapped`: the text belongs to a MappedFile; its pages are released once they are read.
// Errors: kInvalidDump with path and offset; kUnsupported when `memory` does not allow for it.
Status ReadDumpFile(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<std::string_view>* stack_keys, DumpFileLayout* layout,
                    bool mapped = false, MemoryShare* memory = nullptr);

}  // namespace msprobe::dump
