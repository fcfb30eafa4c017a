#include "engine/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

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

void ForgetPagesAround(std::string_view part, std::string_view file) {
  constexpr size_t kFetched = size_t{64} << 10;
  const auto begin = static_cast<size_t>(part.data() - file.data());
  const size_t first = begin - std::min(begin, kFetched);
  ForgetPages(file.substr(first, begin + part.size() + kFetched - first));
}

void CopyAndForget(std::string_view part, char* out) {
  constexpr size_t kPiece = size_t{4} << 20;
  for (size_t at = 0; at < part.size(); at += kPiece) {
    const std::string_view piece = part.substr(at, kPiece);
    std::memcpy(out + at, piece.data(), piece.size());
    ForgetPages(piece);
  }
}

void PreferLargePages(const void* begin, size_t size) {
  constexpr size_t kLargePage = size_t{2} << 20;
  if (size >= 4 * kLargePage) Advise(begin, size, kLargePage, MADV_HUGEPAGE);
}

}  // namespace msprobe
