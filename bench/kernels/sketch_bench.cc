// Statistics without and with the sketch, of tensors of rows x columns, beside memcpy of the same
// bytes. Rates count bytes read.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/sketch.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

// Ordinary numbers of a float dtype.
std::vector<uint8_t> Elements(DType dtype, int64_t n) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n) * DTypeSize(dtype));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    const float v = normal(random);
    const uint16_t half = dtype == DType::kFloat16 ? FloatToHalf(v) : FloatToBFloat16(v);
    dtype == DType::kFloat32 ? std::memcpy(bytes.data() + i * 4, &v, 4)
                             : std::memcpy(bytes.data() + i * 2, &half, 2);
  }
  return bytes;
}

enum class Work { kMemcpy, kStats, kSketch };

template <DType kDType, Work kWork>
void Of(benchmark::State& state) {
  const int64_t shape[] = {state.range(0), state.range(1)};
  const std::vector<uint8_t> in = Elements(kDType, shape[0] * shape[1]);
  std::vector<uint8_t> out(in.size());
  const TensorView view{.data = in.data(), .dtype = kDType, .ndim = 2, .shape = shape};
  for (auto _ : state) {
    if (kWork == Work::kMemcpy) {
      std::memcpy(out.data(), in.data(), in.size());
      benchmark::ClobberMemory();
      continue;
    }
    std::optional<Sketch> sketch;
    benchmark::DoNotOptimize(
        ComputeStats(view, nullptr, Checksum::kNone, kWork == Work::kSketch ? &sketch : nullptr));
    benchmark::DoNotOptimize(sketch);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(in.size()));
}

void Shapes(benchmark::internal::Benchmark* bench) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{4096, 64},
                                      {512, 768},
                                      {4096, 4096},
                                      {1000000, 1},
                                      {200000, 12},
                                      {100000, 7},
                                      {10000, 56}})
    bench->Args({rows, columns});
}
void Bytes(benchmark::internal::Benchmark* bench) { bench->Args({512, 768})->Args({4096, 4096}); }

BENCHMARK(Of<DType::kFloat32, Work::kMemcpy>)->Apply(Bytes);
BENCHMARK(Of<DType::kFloat32, Work::kStats>)->Apply(Shapes);
BENCHMARK(Of<DType::kFloat32, Work::kSketch>)->Apply(Shapes);
BENCHMARK(Of<DType::kBFloat16, Work::kStats>)->Apply(Shapes);
BENCHMARK(Of<DType::kBFloat16, Work::kSketch>)->Apply(Shapes);
BENCHMARK(Of<DType::kFloat16, Work::kStats>)->Apply(Shapes);
BENCHMARK(Of<DType::kFloat16, Work::kSketch>)->Apply(Shapes);

}  // namespace
}  // namespace msprobe::kernels
