#include "engine/kernels/line_sample.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace msprobe::kernels {
namespace {

std::vector<uint8_t> BytesOfSeed(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(LineSampleTest, EqualMemoryHasEqualSamplesWhereverItLies) {
  for (const size_t size : {0, 1, 63, 64, 65, 4095, 4096, 4097, 100001}) {
    const std::vector<uint8_t> bytes = BytesOfSeed(size, size);
    std::vector<uint8_t> moved(size + 3);
    std::copy(bytes.begin(), bytes.end(), moved.begin() + 3);
    EXPECT_EQ(SampleLines(bytes.data(), size), SampleLines(moved.data() + 3, size)) << size;
  }
}

TEST(LineSampleTest, TheSizeBelongsToTheSample) {
  const std::vector<uint8_t> zeros(70000);
  EXPECT_NE(SampleLines(zeros.data(), 4096), SampleLines(zeros.data(), 8192));
  EXPECT_NE(SampleLines(zeros.data(), 1), SampleLines(zeros.data(), 2));
}

TEST(LineSampleTest, AnyChangeOfASmallRangeIsSeen) {
  for (size_t size = 1; size <= 128; ++size) {
    std::vector<uint8_t> bytes = BytesOfSeed(size, size);
    const uint64_t before = SampleLines(bytes.data(), size);
    for (size_t i = 0; i < size; ++i) {
      bytes[i] ^= 1;
      EXPECT_NE(SampleLines(bytes.data(), size), before) << size << " " << i;
      bytes[i] ^= 1;
    }
  }
}

// Whatever its place: a write as long as two parts covers one part wholly.
TEST(LineSampleTest, AWriteOfTwoPartsIsAlwaysSeen) {
  constexpr size_t kPart = 64 * kLinesPerSample;
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t size = 2 * kPart + random() % (20 * kPart);
    std::vector<uint8_t> bytes = BytesOfSeed(size, static_cast<uint64_t>(round));
    const uint64_t before = SampleLines(bytes.data(), size);
    const size_t first = random() % (size - 2 * kPart + 1);
    for (size_t i = first; i < first + 2 * kPart; ++i) bytes[i] = static_cast<uint8_t>(~bytes[i]);
    EXPECT_NE(SampleLines(bytes.data(), size), before) << size << " " << first;
  }
}

TEST(LineSampleTest, SwappedWordsOfALineAreSeen) {
  std::vector<uint64_t> words = {1, 2, 3, 4, 5, 6, 7, 8};
  const uint64_t before = SampleLines(words.data(), 64);
  std::swap(words[2], words[5]);
  EXPECT_NE(SampleLines(words.data(), 64), before);
}

// One changed element is seen about once in kLinesPerSample times: the sample is spread evenly.
TEST(LineSampleTest, OneElementIsSeenAsOftenAsPromised) {
  constexpr size_t kBytes = 1 << 20;
  std::vector<uint8_t> bytes = BytesOfSeed(kBytes, 3);
  const uint64_t before = SampleLines(bytes.data(), kBytes);
  int seen = 0;
  for (size_t line = 0; line < kBytes / 64; ++line) {
    bytes[line * 64 + 8] ^= 255;
    seen += SampleLines(bytes.data(), kBytes) != before;
    bytes[line * 64 + 8] ^= 255;
  }
  EXPECT_GT(seen, 10);
  EXPECT_LT(seen, 70);  // 16384 tries, 32 expected
}

}  // namespace
}  // namespace msprobe::kernels
