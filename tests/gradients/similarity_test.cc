#include "engine/gradients/similarity.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/formats/tensors/sign_archive.h"

namespace msprobe::gradients {
namespace {

struct Both {
  std::vector<uint8_t> bytes, bits;
  Directions AsBytes() const {
    return {.shape = {static_cast<int64_t>(bytes.size())}, .bytes = bytes.data()};
  }
  Directions AsBits() const {
    return {.shape = {static_cast<int64_t>(bytes.size())}, .bits = bits.data()};
  }
};

Both Random(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  Both both{std::vector<uint8_t>(n), std::vector<uint8_t>(n / 8 + 1)};
  for (uint8_t& byte : both.bytes) byte = static_cast<uint8_t>(random() % 3);
  formats::PackSigns(both.bytes, both.bits.data());
  // What follows the last element must not count.
  for (size_t i = n; i < both.bits.size() * 8; ++i)
    if (random() % 2 == 0) both.bits[i / 8] |= static_cast<uint8_t>(1 << (7 - i % 8));
  return both;
}

TEST(CountSame, BitsAndBytesAgreeWithTheObviousLoop) {
  for (const size_t n : {0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 4103, 9000}) {
    const Both a = Random(n, 1), b = Random(n, 2);
    int64_t same = 0;
    for (size_t i = 0; i < n; ++i) same += (a.bytes[i] != 0) == (b.bytes[i] != 0);
    EXPECT_EQ(CountSame(a.AsBytes(), b.AsBytes()), same) << n;
    EXPECT_EQ(CountSame(a.AsBits(), b.AsBits()), same) << n;
    EXPECT_EQ(CountSame(a.AsBytes(), b.AsBits()), same) << n;
    const auto size = static_cast<int64_t>(n);
    EXPECT_EQ(CountDifferent(a.AsBits(), b.AsBytes(), 0, size), size - same) << n;
    EXPECT_EQ(CountSame(a.AsBits(), b.AsBytes()), same) << n;
  }
}

TEST(CountDifferent, OfARange) {
  const uint8_t a = 0b0111'0000, b = 0b0000'0000;
  EXPECT_EQ(CountDifferent({.shape = {8}, .bits = &a}, {.shape = {8}, .bits = &b}, 2, 6), 2);
}

TEST(CountSame, AScalarHasOneElement) {
  const uint8_t yes = 1, no = 0;
  EXPECT_EQ(CountSame({.bytes = &yes}, {.bytes = &yes}), 1);
  EXPECT_EQ(CountSame({.bytes = &yes}, {.bytes = &no}), 0);
}

}  // namespace
}  // namespace msprobe::gradients
