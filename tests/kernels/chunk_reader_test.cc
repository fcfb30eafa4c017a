#include "engine/kernels/chunk_reader.h"

#include <gtest/gtest.h>

#include "engine/kernels/chunks.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

// Reads a view chunk by chunk, in order, and compares with its contiguous copy.
void ExpectReadsAll(const TensorView& view, const std::string& what) {
  const int64_t numel = view.numel(), size = static_cast<int64_t>(DTypeSize(view.dtype));
  std::vector<uint8_t> expected(static_cast<size_t>(numel * size));
  CopyContiguous(view, expected.data());
  const ChunkReader reader(view);
  ChunkReader::Window window;
  for (int64_t first = 0; first < numel; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, numel - first);
    const auto same = [&](const uint8_t* p) {
      return std::memcmp(p, expected.data() + first * size, static_cast<size_t>(n * size)) == 0;
    };
    ASSERT_TRUE(same(reader.Read(first, n, &window))) << what << " at element " << first;
    ChunkReader::Window fresh(/*one_chunk=*/true);
    ASSERT_TRUE(same(reader.Read(first, n, &fresh))) << what << " alone, at element " << first;
  }
}

TEST(ChunkReader, AnyLayout) {
  Random random(1);
  for (int i = 0; i < 600; ++i) {
    const RandomTensor t = MakeRandomTensor(random, static_cast<DType>(i % kDTypeCount),
                                            Values::kAnyBits, i % 10 ? 3000 : 40000);
    ExpectReadsAll(t.view(), t.Text());
  }
}

// Rows that end inside chunks, groups and tiles, with and without gaps between them in memory.
TEST(ChunkReader, TransposedBeyondAGroup) {
  Random random(2);
  for (const DType dtype :
       {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kComplex128}) {
    for (const int64_t columns : {3, 16, 700, 4096, 5003}) {
      for (const int64_t step : {1, 2, -1}) {
        const int64_t rows = kGroupElements / columns + 37;
        const int64_t shape[] = {2, rows, columns};
        const int64_t width = rows * std::abs(step);
        const int64_t strides[] = {width * columns, step, width};
        std::vector<uint8_t> bytes(static_cast<size_t>(2 * width * columns) * DTypeSize(dtype));
        for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
          const uint64_t word = random();
          std::memcpy(bytes.data() + i, &word, 8);
        }
        const int64_t base = step < 0 ? width - 1 : 0;
        ExpectReadsAll({.data = bytes.data() + base * static_cast<int64_t>(DTypeSize(dtype)),
                        .dtype = dtype,
                        .ndim = 3,
                        .shape = shape,
                        .strides = strides},
                       std::string(DTypeTorchName(dtype)) + " " + ShapeText(shape));
      }
    }
  }
}

}  // namespace
}  // namespace msprobe::kernels
