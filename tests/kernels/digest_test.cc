#include "engine/kernels/digest.h"

#include <gtest/gtest.h>

#include "engine/base/threads.h"
#include "engine/kernels/byte_checksums.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/stats.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
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

// Exclusive or of 8-byte words, computed byte by byte.
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

std::vector<uint8_t> RandomBytes(size_t size) {
  Random random(5);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Sizes around those of vectors and steps, at any address; continues from a previous register.
TEST(ByteChecksums, EverySizeAndTarget) {
  const std::vector<uint8_t> bytes = RandomBytes(5000);
  for (size_t size = 0; size < 1400; size += size < 1000 ? 7 : 1) {
    const uint8_t* p = bytes.data() + size % 67;
    const std::vector<uint8_t> piece(p, p + size);
    const uint32_t crc32 = SlowCrc32(piece);
    const uint64_t xor64 = SlowXor64(piece);
    ForEachTarget([&](const char* target) {
      ASSERT_EQ(UpdateCrc32(0, p, size), crc32) << size << " on " << target;
      ASSERT_EQ(UpdateCrc32(UpdateCrc32(0, p, size / 3), p + size / 3, size - size / 3), crc32)
          << size << " on " << target;
      ASSERT_EQ(XorWords(p, size), xor64) << size << " on " << target;
    });
  }
}

TEST(ByteChecksums, Crc32OfTwoPieces) {
  const std::vector<uint8_t> bytes = RandomBytes(5000);
  for (const size_t first : {0, 1, 64, 1000, 4999, 5000}) {
    const std::vector<uint8_t> a(bytes.begin(), bytes.begin() + static_cast<int64_t>(first)),
        b(bytes.begin() + static_cast<int64_t>(first), bytes.end());
    EXPECT_EQ(CombineCrc32(SlowCrc32(a), SlowCrc32(b), Crc32Shift(b.size())), SlowCrc32(bytes));
  }
}

// Computed alone and together with the statistics, on this thread and on several.
void ExpectChecksums(const TensorView& view, ThreadPool* pool, const std::string& what) {
  std::vector<uint8_t> bytes(static_cast<size_t>(view.numel()) * DTypeSize(view.dtype));
  CopyContiguous(view, bytes.data());
  const uint32_t crc32 = SlowCrc32(bytes);
  const uint64_t xor64 = SlowXor64(bytes);
  EXPECT_EQ(Crc32(view), crc32) << what;
  EXPECT_EQ(Xor64(view), xor64) << what;
  EXPECT_EQ(ComputeStats(view, nullptr, Checksum::kCrc32).checksum, crc32) << what;
  EXPECT_EQ(ComputeStats(view, nullptr, Checksum::kXor).checksum, xor64) << what;
  EXPECT_EQ(ComputeStats(view, pool, Checksum::kCrc32).checksum, crc32) << what << ", threads";
  EXPECT_EQ(ComputeStats(view, pool, Checksum::kXor).checksum, xor64) << what << ", threads";
  EXPECT_EQ(ComputeStats(view, pool).checksum, 0u) << what;
}

TEST(Digest, AnyLayoutInLogicalOrder) {
  Random random(3);
  ThreadPool pool(3);
  for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
    const RandomTensor t =
        MakeRandomTensor(random, static_cast<DType>(i % kDTypeCount), Values::kAnyBits, 9000);
    ExpectChecksums(t.view(), &pool, t.Text());
  }
}

TEST(Digest, BoundarySizesAndThreads) {
  ThreadPool pool(3);
  const std::vector<uint8_t> bytes = RandomBytes(8 * (3 * kGroupElements + 1));
  for (const int64_t boundary : {kChunkElements, kGroupElements, 3 * kGroupElements}) {
    for (const DType dtype : {DType::kInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (const int64_t n : {boundary - 1, boundary, boundary + 1}) {
        const std::string what = std::string(DTypeTorchName(dtype)) + " " + std::to_string(n);
        ExpectChecksums(Flat(bytes.data(), dtype, n), &pool, what);
      }
    }
  }
}

TEST(Digest, StridedOnThreads) {
  ThreadPool pool(3);
  const int64_t rows = 700, columns = 500, shape[] = {columns, rows}, strides[] = {1, columns};
  const std::vector<uint8_t> bytes = RandomBytes(static_cast<size_t>(rows * columns) * 4);
  const TensorView view{.data = bytes.data(),
                        .dtype = DType::kFloat32,
                        .ndim = 2,
                        .shape = shape,
                        .strides = strides};
  ExpectChecksums(view, &pool, "transposed");
}

}  // namespace
}  // namespace msprobe::kernels
