// ComputeStats in the simplest way: the definition that the vector kernel is tested against, bit
// for bit.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/kernels/chunks.h"
#include "engine/kernels/stats_node.h"
#include "engine/tensor/float_formats.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

// The sum of the sixteen lanes: the halves are added until one lane is left.
inline double AddLanesScalar(std::array<double, 16> lane) {
  for (size_t n = 8; n > 0; n /= 2) {
    for (size_t j = 0; j < n; ++j) lane[j] += lane[j + n];
  }
  return lane[0];
}

// fingerprint.h, word by word.
inline uint64_t HashScalar(const uint8_t* p, size_t bytes, uint64_t chunk) {
  uint64_t sums[8] = {};
  for (size_t s = 0; s * kStripeBytes < bytes; ++s) {
    uint8_t stripe[kStripeBytes] = {};
    std::memcpy(stripe, p + s * kStripeBytes, std::min(kStripeBytes, bytes - s * kStripeBytes));
    if (s > 0 && s % kBlockStripes == 0) {
      for (uint64_t& sum : sums) sum = ScrambleSum(sum);
    }
    for (size_t j = 0; j < 8; ++j) {
      const uint64_t key = kHashKeys.word[s % kBlockStripes][j];
      uint64_t word;
      std::memcpy(&word, stripe + 8 * j, 8);
      const auto half = [&](int shift) {
        return static_cast<uint32_t>(word >> shift) + static_cast<uint32_t>(key >> shift);
      };
      sums[j] += static_cast<uint64_t>(half(0)) * half(32);
      sums[j ^ 1] += word;
    }
  }
  return FinishChunk(sums, chunk, bytes);
}

inline StatsNode ChunkStatsScalar(DType dtype, const uint8_t* p, int64_t n, int64_t chunk) {
  StatsNode node;
  const size_t size = DTypeSize(dtype);
  std::array<double, 16> sum{}, squares{};
  for (int64_t v = 0; v < n * ValuesPerElement(dtype); ++v) {
    double value;
    if (dtype == DType::kFloat4E2M1X2) {
      value = Float4E2M1ToFloat(p[v / 2] >> (v % 2 ? 4 : 0) & 15);
    } else if (DTypeKindOf(dtype) == DTypeKind::kComplex) {
      const std::complex<double> z = ElementToComplex(dtype, p + v * size);
      value = Modulus(z.real(), z.imag());
    } else {
      value = ElementToDouble(dtype, p + v * size);
    }
    node.nan += std::isnan(value);
    node.pos_inf += std::isinf(value) && value > 0;
    node.neg_inf += std::isinf(value) && value < 0;
    node.zero += value == 0;
    node.max = std::max(node.max, value);
    node.min = std::min(node.min, value);
    const double square = value * value;
    sum[v % 16] += value;
    squares[v % 16] += square;
    if (IsWideInteger(dtype)) {
      uint64_t bits;
      std::memcpy(&bits, p + v * size, 8);
      if (dtype == DType::kUInt64) bits ^= kTopBit;
      node.int_max = std::max(node.int_max, static_cast<int64_t>(bits));
      node.int_min = std::min(node.int_min, static_cast<int64_t>(bits));
    }
  }
  node.sum = AddLanesScalar(sum);
  node.sum_squares = AddLanesScalar(squares);
  node.hash = HashScalar(p, static_cast<size_t>(n) * size, static_cast<uint64_t>(chunk));
  return node;
}

// The chunk tree of chunks.h, built recursively: the number of chunks in the left part is the
// largest power of two that leaves at least one chunk for the right part.
template <typename Node, typename ChunkNode>
Node FoldScalar(int64_t first_chunk, int64_t chunks, const ChunkNode& chunk_node) {
  if (chunks == 1) return chunk_node(first_chunk);
  int64_t left = 1;
  while (left * 2 < chunks) left *= 2;
  return Node::Combine(FoldScalar<Node>(first_chunk, left, chunk_node),
                       FoldScalar<Node>(first_chunk + left, chunks - left, chunk_node));
}

inline Stats ComputeStatsScalar(const TensorView& view) {
  const int64_t numel = view.numel();
  if (numel == 0) return EmptyStats(view.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(numel) * DTypeSize(view.dtype));
  CopyContiguous(view, bytes.data());
  const auto chunk_node = [&](int64_t chunk) {
    const int64_t first = chunk * kChunkElements;
    return ChunkStatsScalar(view.dtype, bytes.data() + first * DTypeSize(view.dtype),
                            std::min(kChunkElements, numel - first), chunk);
  };
  const int64_t chunks = (numel + kChunkElements - 1) / kChunkElements;
  return FinishStats(FoldScalar<StatsNode>(0, chunks, chunk_node), view.dtype, numel);
}

}  // namespace msprobe::kernels
