// A checksum of a tensor that is read chunk by chunk (chunks.h), by one thread or by several.
//
//   ChecksumParts parts(Checksum::kCrc32, InParallel(numel, pool) ? groups : 1);
//   parts.Add(chunk, p, bytes);      // a group's chunks in order, by one thread
//   uint64_t sum = parts.Finish(group_bytes, bytes);
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "engine/kernels/byte_checksums.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/digest.h"

namespace msprobe::kernels {

// Continues a checksum: `sum` is that of the bytes before, 0 at first. The size of every piece but
// the last is a multiple of 8 bytes.
inline uint64_t ContinueChecksum(Checksum kind, uint64_t sum, const uint8_t* p, int64_t bytes) {
  const size_t size = static_cast<size_t>(bytes);
  if (kind == Checksum::kXor) return sum ^ XorWords(p, size);
  return kind == Checksum::kCrc32 ? UpdateCrc32(static_cast<uint32_t>(sum), p, size) : 0;
}

class ChecksumParts {
 public:
  // `parts`: the number of groups, or 1 when all groups are read in order.
  ChecksumParts(Checksum kind, int64_t parts) : kind_(kind) {
    if (kind != Checksum::kNone && parts > 1) parts_.resize(static_cast<size_t>(parts));
  }

  void Add(int64_t chunk, const uint8_t* p, int64_t bytes) {
    if (kind_ == Checksum::kNone) return;
    uint64_t& sum = parts_.empty() ? whole_ : parts_[static_cast<size_t>(chunk / kGroupChunks)];
    sum = ContinueChecksum(kind_, sum, p, bytes);
  }

  // The checksum of all `bytes`. Every group but the last has `group_bytes`.
  uint64_t Finish(int64_t group_bytes, int64_t bytes) const {
    if (parts_.empty()) return whole_;
    if (kind_ == Checksum::kXor)
      return std::accumulate(parts_.begin(), parts_.end(), uint64_t{0}, std::bit_xor());
    const auto shift = [](int64_t by) { return Crc32Shift(static_cast<uint64_t>(by)); };
    const auto crc = [&](size_t part) { return static_cast<uint32_t>(parts_[part]); };
    const size_t last = parts_.size() - 1;
    const uint32_t by_a_group = shift(group_bytes);
    uint32_t sum = crc(0);
    for (size_t part = 1; part < last; ++part) sum = CombineCrc32(sum, crc(part), by_a_group);
    return CombineCrc32(sum, crc(last), shift(bytes - static_cast<int64_t>(last) * group_bytes));
  }

 private:
  Checksum kind_;
  uint64_t whole_ = 0;
  std::vector<uint64_t> parts_;
};

}  // namespace msprobe::kernels
