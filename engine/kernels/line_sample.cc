#include "engine/kernels/line_sample.h"

#include <array>
#include <cstring>

#include "engine/kernels/fingerprint.h"

namespace msprobe::kernels {
namespace {

constexpr size_t kLine = 64, kPart = kLine * kLinesPerSample;
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // of SplitMix64, odd

// 64 bytes as one number. The eight words have keys of their own, so that words which change places
// are seen.
uint64_t Line(const std::byte* line, uint64_t sum) {
  std::array<uint64_t, kLine / sizeof(uint64_t)> words;
  std::memcpy(words.data(), line, kLine);
  uint64_t mixed = 0;  // the products do not wait for each other
  for (size_t i = 0; i < words.size(); ++i) mixed += Mix64(words[i] + kStep * (i + 1));
  return (sum ^ mixed) * kStep;
}

}  // namespace

uint64_t SampleLines(const void* begin, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(begin);
  uint64_t sum = Mix64(bytes + 1);
  if (bytes < kLine) {
    std::array<std::byte, kLine> line = {};
    std::memcpy(line.data(), at, bytes);
    return Line(line.data(), sum);
  }
  // Four sums, so that the lines of several parts are fetched from memory at the same time.
  std::array<uint64_t, 4> sums = {Line(at, sum), Line(at + bytes - kLine, sum + 1), sum + 2,
                                  sum + 3};
  size_t part = 0;
  for (size_t start = 0; start + kLine <= bytes; start += kPart, ++part) {
    const size_t lines = (bytes - start < kPart ? bytes - start : kPart) / kLine;
    const size_t chosen = (Mix64(part * kStep + bytes) >> 32) * lines >> 32;
    sums[part % sums.size()] = Line(at + start + chosen * kLine, sums[part % sums.size()]);
  }
  for (const uint64_t one : sums) sum = Mix64(sum + one);
  return sum;
}

}  // namespace msprobe::kernels
