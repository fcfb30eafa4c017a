// A checksum alone, in a second pass after the statistics, and in the same pass, beside memcpy of
// the same bytes. Rates count the tensor's bytes once.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "engine/kernels/digest.h"
#include "engine/kernels/stats.h"

namespace msprobe::kernels {
namespace {

constexpr int64_t kSmall = 1 << 10, kChunk = 1 << 14, kInCache = 1 << 18, kLarge = 1 << 28;

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t size : {kSmall, kChunk, kInCache, kLarge}) benchmark->Arg(size);
}

template <typename Measure>
void Run(benchmark::State& state, const Measure& measure) {
  const std::vector<float> in(static_cast<size_t>(state.range(0) / 4), 1.5f);
  const int64_t n = static_cast<int64_t>(in.size());
  const TensorView view{.data = in.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = &n};
  for (auto _ : state) measure(view);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void MemcpyBeside(benchmark::State& state) {
  std::vector<uint8_t> out(static_cast<size_t>(state.range(0)));
  Run(state, [&](const TensorView& view) {
    std::memcpy(out.data(), view.data, out.size());
    benchmark::ClobberMemory();
  });
}
BENCHMARK(MemcpyBeside)->Apply(Sizes);

void Crc32Alone(benchmark::State& state) {
  Run(state, [](const TensorView& view) { benchmark::DoNotOptimize(Crc32(view)); });
}
BENCHMARK(Crc32Alone)->Apply(Sizes);

void Statistics(benchmark::State& state) {
  Run(state, [](const TensorView& view) { benchmark::DoNotOptimize(ComputeStats(view)); });
}
BENCHMARK(Statistics)->Apply(Sizes);

void StatisticsThenCrc32(benchmark::State& state) {
  Run(state, [](const TensorView& view) {
    benchmark::DoNotOptimize(ComputeStats(view));
    benchmark::DoNotOptimize(Crc32(view));
  });
}
BENCHMARK(StatisticsThenCrc32)->Apply(Sizes);

template <Checksum kChecksum>
void StatisticsWith(benchmark::State& state) {
  Run(state, [](const TensorView& view) {
    benchmark::DoNotOptimize(ComputeStats(view, nullptr, kChecksum));
  });
}
BENCHMARK(StatisticsWith<Checksum::kCrc32>)->Apply(Sizes);
BENCHMARK(StatisticsWith<Checksum::kXor>)->Apply(Sizes);

}  // namespace
}  // namespace msprobe::kernels
