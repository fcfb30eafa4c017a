// How much memory comparing two dumps may take, and how much it has come to. Whoever reads says
// what is held as it goes, and is stopped before there is more of it than there may be.
//
//   MemoryBudget budget({.bytes = uint64_t{1} << 30, .file_bytes = sizes_of_both});
//   Result<Dump> target = ReadDump(path, &budget);         // holds a MemoryShare meanwhile
//   if (budget.exceeded()) return target.status();         // it says what the dumps need
//   const uint64_t left = budget.left();                   // for what is compared
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe {

// What a comparison takes beside its dumps: the program, the parts of files that its threads are
// reading and writing at the moment.
uint64_t FixedMemory();

// What a dump of so many records and leaves and so much text comes to, with its half of what
// comparing it adds: rows, measures, verdicts, pairs.
uint64_t MemoryOf(size_t records, size_t leaves, uint64_t text);
uint64_t MemoryOf(const Dump& dump);
// That half.
uint64_t MemoryForComparing(size_t records, size_t leaves);

// Thread-safe.
class MemoryBudget {
 public:
  struct Options {
    uint64_t bytes = UINT64_MAX;  // for everything, FixedMemory() included
    uint64_t file_bytes = 0;      // of all files that will be read
    bool asked_for = true;        // the user said how much; else it is what the machine has
  };
  explicit MemoryBudget(const Options& options) : options_(options) {}

  // What is not taken yet.
  uint64_t left() const;
  // Something did not fit.
  bool exceeded() const;
  // kUnsupported, saying what all needs, when `bytes` more, for something that is no dump, are too
  // much.
  Status Take(std::string_view what, uint64_t bytes);

 private:
  friend class MemoryShare;
  Status TooMuch(std::string_view path, uint64_t needed);  // with mutex_ held

  const Options options_;
  mutable std::mutex mutex_;
  uint64_t held_ = 0, read_ = 0;
  bool exceeded_ = false;
};

// The part of one dump.
class MemoryShare {
 public:
  MemoryShare(MemoryBudget* budget, std::string_view path) : budget_(budget), path_(path) {}

  // All in all the dump takes `bytes` by now, of `read` bytes of its file. kUnsupported, saying
  // what both dumps need, when that is more than there is. Without a budget there always is enough.
  Status Holds(uint64_t bytes, uint64_t read);
  // For now so much beside that.
  Status Beside(uint64_t bytes);

 private:
  MemoryBudget* budget_;
  std::string_view path_;
  uint64_t held_ = 0, beside_ = 0, read_ = 0;
};

}  // namespace msprobe
