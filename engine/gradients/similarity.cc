#include "engine/gradients/similarity.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/formats/tensors/sign_archive.h"

namespace msprobe::gradients {
namespace {

constexpr int64_t kBlock = 4096;  // elements
using Packed = std::array<uint8_t, kBlock / 8>;

// The bits of `n` elements from `first` on, with zeros up to the end of the last word.
void Load(const Directions& from, int64_t first, int64_t n, Packed* out) {
  const size_t size = static_cast<size_t>((n + 7) / 8);
  std::memset(out->data() + size / 8 * 8, 0, (size + 7) / 8 * 8 - size / 8 * 8);
  if (from.bits == nullptr) {
    formats::PackSigns({from.bytes + first, static_cast<size_t>(n)}, out->data());
    return;
  }
  std::memcpy(out->data(), from.bits + first / 8, size);
  // A file of another program may have ones after its last element.
  if (n % 8 != 0) (*out)[size - 1] &= static_cast<uint8_t>(0xff << (8 - n % 8));
}

}  // namespace

int64_t Directions::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

bool Directions::At(int64_t i) const {
  return bits == nullptr ? bytes[i] != 0 : (bits[i / 8] >> (7 - i % 8) & 1) != 0;
}

int64_t CountSame(const Directions& target, const Directions& golden) {
  const int64_t all = target.count();
  int64_t different = 0;
  Packed a, b;
  for (int64_t first = 0; first < all; first += kBlock) {
    const int64_t n = std::min(kBlock, all - first);
    Load(target, first, n, &a);
    Load(golden, first, n, &b);
    for (size_t i = 0; i < static_cast<size_t>((n + 63) / 64); ++i) {
      uint64_t x, y;
      std::memcpy(&x, a.data() + 8 * i, 8);
      std::memcpy(&y, b.data() + 8 * i, 8);
      different += std::popcount(x ^ y);
    }
  }
  return all - different;
}

int64_t CountDifferent(const Directions& target, const Directions& golden, int64_t begin,
                       int64_t end) {
  int64_t different = 0;
  for (int64_t i = begin; i < end; ++i) different += target.At(i) != golden.At(i);
  return different;
}

}  // namespace msprobe::gradients
