// A limit on the memory of a comparison, and how much of it is taken. Readers take memory from the
// budget before they allocate it; reading fails with kUnsupported before the limit is exceeded.
//
//   MemoryBudget budget({.bytes = uint64_t{1} << 30, .file_bytes = sizes_of_both});
//   Result<Dump> target = ReadDump(path, &budget);         // holds a MemoryShare meanwhile
//   if (budget.exceeded()) return target.status();         // it says what the dumps need
//   const uint64_t left = budget.left();                   // for what is compared
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe {

// Bytes that a comparison needs besides its dumps: for the program, and for the parts of files that
// its threads are reading and writing.
uint64_t FixedMemory();

// Bytes that a dump of so many records and leaves and so much text needs, with half of what
// comparing two such dumps adds: rows, measures, verdicts, pairs.
uint64_t MemoryOf(size_t records, size_t leaves, uint64_t text);
uint64_t MemoryOf(const Dump& dump);
// Only that half.
uint64_t MemoryForComparing(size_t records, size_t leaves);

// Thread-safe.
class MemoryBudget {
 public:
  struct Options {
    uint64_t bytes = UINT64_MAX;  // the limit, with FixedMemory()
    uint64_t file_bytes = 0;      // size of all files that will be read
    bool asked_for = true;        // the limit is the user's; false: it is what the machine has
    // Called with how many bytes of all files were read so far. Must not call the budget.
    std::function<void(uint64_t read)> on_read;
  };
  explicit MemoryBudget(const Options& options) : options_(options) {}

  // Bytes that are not taken yet.
  uint64_t left() const;
  // Whether something did not fit.
  bool exceeded() const;
  // Takes bytes for something other than a dump. kUnsupported when they do not fit; the message
  // says how much the whole comparison needs.
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

  // Sets the memory of the dump so far to `bytes`, after `read` bytes of its file. kUnsupported if
  // both dumps need more than the budget; the message says how much. Without a budget: always Ok.
  Status Holds(uint64_t bytes, uint64_t read);
  // Takes `bytes` besides the memory of the dump, until the next call of Holds or Beside.
  Status Beside(uint64_t bytes);

 private:
  MemoryBudget* budget_;
  std::string_view path_;
  uint64_t held_ = 0, beside_ = 0, read_ = 0;
};

}  // namespace msprobe
