// The fingerprint of ComputeStats: changes that must alter it, and changes that must not.
#include "engine/kernels/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "engine/kernels/chunks.h"
#include "engine/kernels/stats.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

uint64_t Fingerprint(const std::vector<uint8_t>& bytes, DType dtype = DType::kUInt8) {
  const int64_t n = static_cast<int64_t>(bytes.size() / DTypeSize(dtype));
  return ComputeStats(Flat(bytes.data(), dtype, n)).fingerprint;
}

std::vector<uint8_t> BytesFrom(Random& random, size_t n) {
  std::vector<uint8_t> bytes(n);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Checks that the fingerprints of all added tensors are distinct.
class Distinct {
 public:
  void Add(uint64_t fingerprint, const std::string& what) {
    const auto [it, fresh] = seen_.emplace(fingerprint, what);
    EXPECT_TRUE(fresh) << what << " has the fingerprint of " << it->second;
  }
  size_t size() const { return seen_.size(); }

 private:
  std::unordered_map<uint64_t, std::string> seen_;
};

TEST(Fingerprint, EverySingleBitFlipChangesIt) {
  Random random(1);
  for (const size_t size : {1, 7, 8, 63, 64, 65, 200, 513}) {
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<uint8_t> bytes = BytesFrom(random, size);
      if (kind == 1) std::fill(bytes.begin(), bytes.end(), 0);
      if (kind == 2) std::fill(bytes.begin(), bytes.end(), 0xff);
      Distinct distinct;
      distinct.Add(Fingerprint(bytes), "unchanged");
      for (size_t bit = 0; bit < size * 8; ++bit) {
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        distinct.Add(Fingerprint(bytes), "bit " + std::to_string(bit));
        bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      }
      EXPECT_EQ(distinct.size(), size * 8 + 1);
    }
  }
}

template <typename T>
void EverySwap(const std::vector<T>& values, DType dtype) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  const auto fingerprint = [&](const std::vector<T>& v) {
    std::memcpy(bytes.data(), v.data(), bytes.size());
    return Fingerprint(bytes, dtype);
  };
  std::vector<T> v = values;
  Distinct distinct;
  distinct.Add(fingerprint(v), "unchanged");
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t j = i + 1; j < v.size(); ++j) {
      if (v[i] == v[j]) continue;
      std::swap(v[i], v[j]);
      distinct.Add(fingerprint(v), "swap " + std::to_string(i) + " " + std::to_string(j));
      std::swap(v[i], v[j]);
    }
  }
}

TEST(Fingerprint, EverySwapOfTwoElementsChangesIt) {
  Random random(2);
  std::vector<float> floats(200);
  for (float& f : floats) f = static_cast<float>(random() % 1000) / 8;
  EverySwap(floats, DType::kFloat32);
  std::vector<int64_t> small(150);  // the high halves of the elements are zero
  for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<int64_t>(i);
  EverySwap(small, DType::kInt64);
  std::vector<int32_t> counting(200);
  for (size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<int32_t>(i);
  EverySwap(counting, DType::kInt32);
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  EverySwap(bytes, DType::kUInt8);
}

TEST(Fingerprint, LengthOfZerosAndDTypeCount) {
  Distinct distinct;
  for (size_t n = 0; n < 20000; n += n < 300 ? 1 : 61) {
    distinct.Add(Fingerprint(std::vector<uint8_t>(n, 0)), std::to_string(n) + " zeros");
  }
  const std::vector<uint8_t> bytes(64, 1);
  for (int d = 0; d < kDTypeCount; ++d) {
    distinct.Add(Fingerprint(bytes, static_cast<DType>(d)),
                 std::string(DTypeShortName(static_cast<DType>(d))));
  }
}

TEST(Fingerprint, SwappedWordsStripesAndChunksChangeIt) {
  Random random(4);
  const size_t chunk = static_cast<size_t>(kChunkElements);
  const std::vector<uint8_t> bytes = BytesFrom(random, 4 * chunk);
  Distinct distinct;
  distinct.Add(Fingerprint(bytes), "unchanged");
  for (const size_t block : {size_t{8}, size_t{16}, size_t{32}, size_t{64}, size_t{128}, chunk}) {
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = i + 1; j < 4; ++j) {
        std::vector<uint8_t> v = bytes;
        std::swap_ranges(v.begin() + static_cast<long>(i * block),
                         v.begin() + static_cast<long>((i + 1) * block),
                         v.begin() + static_cast<long>(j * block));
        distinct.Add(Fingerprint(v), "blocks of " + std::to_string(block) + ": " +
                                         std::to_string(i) + " " + std::to_string(j));
      }
    }
  }
}

// All pairs of flipped bits, as from an error in a number and in its copy.
TEST(Fingerprint, EveryPairOfBitFlipsChangesIt) {
  Random random(5);
  std::vector<uint8_t> bytes = BytesFrom(random, 96);
  Distinct distinct;
  const auto flip = [&](size_t bit) { bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8); };
  for (size_t a = 0; a < bytes.size() * 8; ++a) {
    flip(a);
    for (size_t b = a + 1; b < bytes.size() * 8; ++b) {
      flip(b);
      distinct.Add(Fingerprint(bytes), std::to_string(a) + " " + std::to_string(b));
      flip(b);
    }
    flip(a);
  }
  EXPECT_EQ(distinct.size(), 768u * 767 / 2);
}

// Every input bit changes about half of the output bits.
TEST(Fingerprint, Avalanche) {
  Random random(6);
  constexpr int kRounds = 400;
  for (size_t bit = 0; bit < 256; bit += 5) {
    int changed = 0;
    for (int r = 0; r < kRounds; ++r) {
      std::vector<uint8_t> bytes = BytesFrom(random, 32);
      const uint64_t before = Fingerprint(bytes);
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      changed += std::popcount(before ^ Fingerprint(bytes));
    }
    EXPECT_NEAR(static_cast<double>(changed) / kRounds, 32.0, 1.5) << "bit " << bit;
  }
}

// Recorded values: dumps of different versions must be comparable.
TEST(Fingerprint, NeverChangesBetweenVersions) {
  std::vector<uint8_t> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  EXPECT_EQ(Fingerprint({}, DType::kFloat32), 5974825227474435752u);
  EXPECT_EQ(Fingerprint(bytes, DType::kFloat32), 15549618476888001836u);
  EXPECT_EQ(Fingerprint(bytes, DType::kUInt8), 7602500628691610882u);
}

}  // namespace
}  // namespace msprobe::kernels
