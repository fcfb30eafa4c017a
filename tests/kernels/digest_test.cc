#include "engine/kernels/digest.h"

#include <gtest/gtest.h>

#include "tests/kernels/random_tensor.h"

namespace msprobe {
namespace {

// CRC-32 bit by bit, from its definition.
uint32_t SlowCrc32(const std::vector<uint8_t>& bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

TEST(Crc32, KnownAnswer) {
  const char text[] = "123456789";
  const int64_t n = 9;
  EXPECT_EQ(Crc32(Flat(text, DType::kUInt8, n)), 0xcbf43926u);
  const int64_t none = 0;
  EXPECT_EQ(Crc32(Flat(nullptr, DType::kUInt8, none)), 0u);
}

TEST(Crc32, AnyLayoutInLogicalOrder) {
  Random random(3);
  for (int i = 0; i < 400; ++i) {
    const RandomTensor t =
        MakeRandomTensor(random, static_cast<DType>(i % kDTypeCount), Values::kAnyBits, 9000);
    std::vector<uint8_t> bytes(static_cast<size_t>(t.view().numel()) * DTypeSize(t.dtype));
    CopyContiguous(t.view(), bytes.data());
    ASSERT_EQ(Crc32(t.view()), SlowCrc32(bytes)) << t.Text();
  }
}

// Byte by byte, each at its place in a word.
uint64_t SlowXor64(const std::vector<uint8_t>& bytes) {
  uint64_t result = 0;
  for (size_t i = 0; i < bytes.size(); ++i) result ^= uint64_t{bytes[i]} << 8 * (i % 8);
  return result;
}

TEST(Xor64, KnownAnswer) {
  const double two[] = {1.0, -1.0};
  const int64_t n = 2, none = 0;
  EXPECT_EQ(Xor64(Flat(two, DType::kFloat64, n)), uint64_t{1} << 63);
  const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 0xf1};
  const int64_t nine = 9, one = 1;
  EXPECT_EQ(Xor64(Flat(bytes, DType::kUInt8, nine)), 0x0807060504030201u ^ 0xf1);
  EXPECT_EQ(Xor64(Flat(bytes, DType::kInt16, one)), 0x0201u);
  EXPECT_EQ(Xor64(Flat(nullptr, DType::kUInt8, none)), 0u);
}

TEST(Xor64, AnyLayoutInLogicalOrder) {
  Random random(4);
  for (int i = 0; i < 400; ++i) {
    const RandomTensor t =
        MakeRandomTensor(random, static_cast<DType>(i % kDTypeCount), Values::kAnyBits, 9000);
    std::vector<uint8_t> bytes(static_cast<size_t>(t.view().numel()) * DTypeSize(t.dtype));
    CopyContiguous(t.view(), bytes.data());
    ASSERT_EQ(Xor64(t.view()), SlowXor64(bytes)) << t.Text();
  }
}

}  // namespace
}  // namespace msprobe
