// ComputeStats beside memcpy of the same bytes, in one run. Rates count bytes read.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/base/threads.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

std::vector<float> RandomFloats(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < v.size(); ++i) v[i] = i < 65536 ? normal(random) : v[i - 65536];
  return v;
}

void Memcpy(benchmark::State& state) {
  const std::vector<float> in = RandomFloats(state.range(0));
  std::vector<float> out(in.size());
  for (auto _ : state) {
    std::memcpy(out.data(), in.data(), in.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(Memcpy)->Arg(512)->Arg(1 << 16)->Arg(1 << 20)->Arg(64 << 20);

template <DType kDType>
void Contiguous(benchmark::State& state) {
  std::vector<float> in = RandomFloats(state.range(0));
  const int64_t n = state.range(0) * 4 / static_cast<int64_t>(DTypeSize(kDType));
  // The 16-bit formats get ordinary numbers; the other dtypes read the bits of the float32 values.
  if (kDType == DType::kBFloat16 || kDType == DType::kFloat16) {
    uint16_t* half = reinterpret_cast<uint16_t*>(in.data());
    for (int64_t i = n - 1; i >= 0; --i) {
      const float v = 1.0f + static_cast<float>(i % 1000);
      half[i] = kDType == DType::kFloat16 ? FloatToHalf(v) : FloatToBFloat16(v);
    }
  }
  const TensorView view{.data = in.data(), .dtype = kDType, .ndim = 1, .shape = &n};
  for (auto _ : state) benchmark::DoNotOptimize(ComputeStats(view));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(Contiguous<DType::kFloat32>)
    ->Arg(1)
    ->Arg(512)
    ->Arg(4096)
    ->Arg(1 << 16)
    ->Arg(1 << 20)
    ->Arg(64 << 20);
BENCHMARK(Contiguous<DType::kBFloat16>)->Arg(64 << 20);
BENCHMARK(Contiguous<DType::kFloat16>)->Arg(64 << 20);
BENCHMARK(Contiguous<DType::kFloat64>)->Arg(64 << 20);
BENCHMARK(Contiguous<DType::kFloat8E4M3FN>)->Arg(16 << 20);
BENCHMARK(Contiguous<DType::kInt32>)->Arg(16 << 20);
BENCHMARK(Contiguous<DType::kInt64>)->Arg(16 << 20);
BENCHMARK(Contiguous<DType::kBool>)->Arg(16 << 20);
BENCHMARK(Contiguous<DType::kComplex64>)->Arg(16 << 20);

void TwoThreads(benchmark::State& state) {
  const std::vector<float> in = RandomFloats(state.range(0));
  const int64_t n = state.range(0);
  const TensorView view{.data = in.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = &n};
  ThreadPool pool(2);
  for (auto _ : state) benchmark::DoNotOptimize(ComputeStats(view, &pool));
  state.SetBytesProcessed(state.iterations() * n * 4);
}
BENCHMARK(TwoThreads)->Arg(64 << 20)->UseRealTime();

// A view of n x n elements with strides [1, n], like weight.t() or a channels_last activation.
void Transposed(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> in = RandomFloats(n * n);
  const int64_t shape[] = {n, n}, strides[] = {1, n};
  const TensorView view{
      .data = in.data(), .dtype = DType::kFloat32, .ndim = 2, .shape = shape, .strides = strides};
  for (auto _ : state) benchmark::DoNotOptimize(ComputeStats(view));
  state.SetBytesProcessed(state.iterations() * n * n * 4);
}
BENCHMARK(Transposed)->Arg(64)->Arg(512)->Arg(4096);

}  // namespace
}  // namespace msprobe::kernels
