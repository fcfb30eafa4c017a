// Statistics without and with the sketch, of tensors of rows x columns, beside memcpy of the same
// bytes. Rates count bytes read. MSPROBE_BENCH_TARGET=AVX2 measures what CPUs without AVX-512 run.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/sketch.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

struct alignas(64) Line {  // as PyTorch aligns memory
  uint8_t bytes[64];
};
using Memory = std::vector<Line>;

// Ordinary numbers of a float dtype.
Memory Elements(DType dtype, int64_t n) {
  Memory memory(static_cast<size_t>(n) * DTypeSize(dtype) / sizeof(Line) + 1);
  uint8_t* bytes = memory[0].bytes;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    const float v = normal(random);
    const double wide = v;
    const uint16_t half = dtype == DType::kFloat16 ? FloatToHalf(v) : FloatToBFloat16(v);
    dtype == DType::kFloat64   ? std::memcpy(bytes + i * 8, &wide, 8)
    : dtype == DType::kFloat32 ? std::memcpy(bytes + i * 4, &v, 4)
                               : std::memcpy(bytes + i * 2, &half, 2);
  }
  return memory;
}

enum class Work { kMemcpy, kStats, kSketch };

template <DType kDType, Work kWork>
void Of(benchmark::State& state) {
  const int64_t shape[] = {state.range(0), state.range(1)};
  const Memory in = Elements(kDType, shape[0] * shape[1]);
  const size_t size = static_cast<size_t>(shape[0] * shape[1]) * DTypeSize(kDType);
  Memory out(in.size());
  const TensorView view{.data = in.data(), .dtype = kDType, .ndim = 2, .shape = shape};
  for (auto _ : state) {
    if (kWork == Work::kMemcpy) {
      std::memcpy(out.data(), in.data(), size);
      benchmark::ClobberMemory();
      continue;
    }
    std::optional<Sketch> sketch;
    benchmark::DoNotOptimize(
        ComputeStats(view, nullptr, Checksum::kNone, kWork == Work::kSketch ? &sketch : nullptr));
    benchmark::DoNotOptimize(sketch);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}

void Shapes(benchmark::internal::Benchmark* bench) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{4096, 64},
                                      {8192, 32},
                                      {16384, 16},
                                      {32768, 8},
                                      {65536, 4},
                                      {16384, 14},
                                      {8192, 28},
                                      {90000, 3},
                                      {2048, 128},
                                      {1024, 256},
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
BENCHMARK(Of<DType::kFloat64, Work::kStats>)->Apply(Shapes);
BENCHMARK(Of<DType::kFloat64, Work::kSketch>)->Apply(Shapes);

[[maybe_unused]] const bool kForced = [] {
  const char* name = std::getenv("MSPROBE_BENCH_TARGET");
  if (name == nullptr) return false;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (std::strcmp(hwy::TargetName(target), name) != 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return true;
  }
  std::fprintf(stderr, "error: MSPROBE_BENCH_TARGET: this CPU has no target %s\n", name);
  std::exit(1);
}();

}  // namespace
}  // namespace msprobe::kernels
