#include "engine/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace msprobe {
namespace {

// Tells the system about the whole units of `unit` bytes inside [begin, begin + size).
void Advise(const void* begin, size_t size, size_t unit, int advice) {
  const auto first = (reinterpret_cast<uintptr_t>(begin) + unit - 1) / unit * unit;
  const auto last = (reinterpret_cast<uintptr_t>(begin) + size) / unit * unit;
  if (last > first) (void)::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void ForgetPages(std::string_view part) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  Advise(part.data(), part.size(), page, MADV_DONTNEED);
}

void PreferLargePages(const void* begin, size_t size) {
  constexpr size_t kLargePage = size_t{2} << 20;
  if (size >= 4 * kLargePage) Advise(begin, size, kLargePage, MADV_HUGEPAGE);
}

}  // namespace msprobe
