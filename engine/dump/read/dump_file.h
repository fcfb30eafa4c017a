// Reads dump.json: header, entries, closing braces. Large files are cut at entry lines, and the
// pieces are parsed in parallel. When the lines of a file are laid out in another way, it is read
// from front to back. The result is the same.
#pragma once

#include <string_view>
#include <vector>

#include "engine/model/memory_budget.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// A member of the document after "data", true: `recover` closed the dump of a run that was killed.
// What comes after its last record is not observed, and not missing.
inline constexpr std::string_view kCutShort = "cut_short";

// Where the parts of the file are; what `recover` needs to close it.
struct DumpFileLayout {
  size_t keep = 0;  // offset after the last whole entry, or after the '}' of "data" if it is there
  bool data_closed = false;  // the '}' of "data" is there
  bool root_closed = false;  // the last '}' of the file is there
  size_t dropped = 0;        // bytes of an unfinished entry
};

// Fills all members of `dump` that dump.json tells: header fields, records, leaves, arena,
// complete, note. Views point into `text`. `stack_keys` gets the member "stack" of each record.
// `mapped`: the text belongs to a MappedFile; its pages are released once they are read. Errors:
// kInvalidDump with path and offset; kUnsupported when `memory` is too small for the dump.
// `parse_numbers`: ReadOptions.
Status ReadDumpFile(std::string_view path, std::string_view text, Dump* dump,
                    std::vector<std::string_view>* stack_keys, DumpFileLayout* layout,
                    bool mapped = false, MemoryShare* memory = nullptr, bool parse_numbers = true);

}  // namespace msprobe::dump
