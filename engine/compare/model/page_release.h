// Gives pages of a dump's mapped files back to the system while a loop walks over its rows. Such a
// loop touches every page once; without this, whole files of large dumps would stay in memory.
//
//   PageRelease pages(target, golden);
//   pool.ParallelFor(chunks, [&](size_t i) { Work(i); pages.RowsDone(kRowsOfChunk); });
#pragma once

#include <atomic>
#include <cstddef>

#include "engine/base/pages.h"
#include "engine/model/table.h"

namespace msprobe::compare {

class PageRelease {
 public:
  PageRelease(const Dump& target, const Dump& golden) : target_(target), golden_(golden) {}
  explicit PageRelease(const Dump& only) : PageRelease(only, only) {}
  ~PageRelease() { Forget(); }

  // Call it when so many more rows are done. Thread-safe, also while other threads read the dumps:
  // pages that they touch come back from the system's cache.
  void RowsDone(size_t rows) {
    constexpr size_t kRows = 1 << 14;
    const size_t before = rows_.fetch_add(rows, std::memory_order_relaxed);
    if (before / kRows != (before + rows) / kRows) Forget();
  }

 private:
  void Forget() const {
    for (const Dump* dump : {&target_, &golden_}) {
      for (const MappedFile& file : dump->files) {
        if (file.bytes().size() >= kLargeFile) ForgetPages(file.bytes());
      }
    }
  }

  const Dump &target_, &golden_;
  std::atomic<size_t> rows_ = 0;
};

}  // namespace msprobe::compare
