// DigestContent: changes that must alter it, and the same bits on every target.
#include "engine/kernels/content_digest.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "engine/kernels/content_digest_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

std::string RandomText(Random& random, size_t n) {
  std::string bytes(n, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(ContentDigest, IsTheSameOnEveryTarget) {
  Random random(1);
  for (const size_t size : {0, 1, 7, 63, 64, 65, 4095, 4096, 4097, 8200, 100001}) {
    const std::string bytes = RandomText(random, size + 1);
    const std::string_view odd = std::string_view(bytes).substr(1);  // not aligned
    const ContentDigest expected = DigestContentScalar(odd);
    ForEachTarget([&](const char* target) {
      EXPECT_EQ(DigestContent(odd), expected) << target << ", " << size << " bytes";
    });
  }
}

TEST(ContentDigest, EveryBitChangesBothWords) {
  Random random(2);
  for (const size_t size : {1, 8, 65, 513, 4100}) {
    for (const char kind : {'r', '\0', '\xff'}) {
      std::string bytes = kind == 'r' ? RandomText(random, size) : std::string(size, kind);
      std::map<uint64_t, size_t> low, high;
      for (size_t bit = 0; bit < size * 8; ++bit) {
        bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
        const ContentDigest digest = DigestContent(bytes);
        bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
        EXPECT_TRUE(low.emplace(digest.low, bit).second) << bit;
        EXPECT_TRUE(high.emplace(digest.high, bit).second) << bit;
      }
      const ContentDigest unchanged = DigestContent(bytes);
      EXPECT_FALSE(low.contains(unchanged.low) || high.contains(unchanged.high));
    }
  }
}

TEST(ContentDigest, SizeOfZerosAndExchangedWordsCount) {
  std::map<uint64_t, size_t> low, high;
  for (size_t size = 0; size < 9000; ++size) {
    const ContentDigest digest = DigestContent(std::string(size, '\0'));
    EXPECT_TRUE(low.emplace(digest.low, size).second) << size;
    EXPECT_TRUE(high.emplace(digest.high, size).second) << size;
  }
  std::string bytes(64 << 10, '\0');
  for (size_t i = 0; i < bytes.size(); i += 8) bytes[i] = static_cast<char>(i / 8 % 251);
  const ContentDigest before = DigestContent(bytes);
  for (const size_t apart : {8, 64, 128, 4096, 8192, 32768}) {
    std::string other = bytes;
    other[0] = 101, other[apart] = 102;
    const ContentDigest first = DigestContent(other);
    std::swap(other[0], other[apart]);
    EXPECT_NE(DigestContent(other), first) << apart;
    EXPECT_NE(first, before);
  }
}

}  // namespace
}  // namespace msprobe::kernels
