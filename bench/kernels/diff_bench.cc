// ComputeDiff beside memcpy of one of its tensors, in one run. Rates count the bytes read of both.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "engine/base/threads.h"
#include "engine/kernels/diff.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {
namespace {

enum class Case { kNear, kEqual };

// Two tensors of normally distributed numbers; the second differs by about 1e-4, or is equal.
struct Tensors {
  std::vector<uint8_t> t, g;
  int64_t n;
  Tensors(DType dtype, int64_t count, Case c)
      : t(static_cast<size_t>(count) * DTypeSize(dtype)), g(t.size()), n(count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(65536), noise(65521);
    for (float& v : values) v = normal(random);
    for (float& v : noise) v = 1 + 1e-4f * normal(random);
    for (int64_t i = 0; i < n; ++i) {
      const float a = values[static_cast<size_t>(i) % values.size()];
      const float b = c == Case::kEqual ? a : a * noise[static_cast<size_t>(i) % noise.size()];
      Put(dtype, a, t.data() + static_cast<size_t>(i) * DTypeSize(dtype));
      Put(dtype, b, g.data() + static_cast<size_t>(i) * DTypeSize(dtype));
    }
  }
  static void Put(DType dtype, float v, uint8_t* out) {
    const auto put = [&](auto x) { std::memcpy(out, &x, sizeof(x)); };
    switch (dtype) {
      case DType::kBFloat16:
        put(FloatToBFloat16(v));
        break;
      case DType::kFloat16:
        put(FloatToHalf(v));
        break;
      case DType::kFloat64:
        put(static_cast<double>(v));
        break;
      case DType::kInt64:
        put(static_cast<int64_t>(v * 1000));
        break;
      case DType::kInt32:
        put(static_cast<int32_t>(v * 1000));
        break;
      default:
        put(v);
    }
  }
};

void MemcpyOne(benchmark::State& state) {
  const Tensors in(DType::kFloat32, state.range(0), Case::kEqual);
  std::vector<uint8_t> out(in.t.size());
  for (auto _ : state) {
    std::memcpy(out.data(), in.t.data(), in.t.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(in.t.size()));
}
BENCHMARK(MemcpyOne)->Arg(64 << 20);

template <DType kDType, Case kCase>
void DiffOf(benchmark::State& state) {
  const Tensors in(kDType, state.range(0), kCase);
  const TensorView t{.data = in.t.data(), .dtype = kDType, .ndim = 1, .shape = &in.n};
  TensorView g = t;
  g.data = in.g.data();
  for (auto _ : state) benchmark::DoNotOptimize(ComputeDiff(t, g));
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<int64_t>(in.t.size()));
}
BENCHMARK(DiffOf<DType::kFloat32, Case::kNear>)->Arg(1)->Arg(512)->Arg(1 << 16)->Arg(64 << 20);
BENCHMARK(DiffOf<DType::kFloat32, Case::kEqual>)->Arg(512)->Arg(1 << 16)->Arg(64 << 20);
BENCHMARK(DiffOf<DType::kBFloat16, Case::kNear>)->Arg(1 << 16)->Arg(64 << 20);
BENCHMARK(DiffOf<DType::kFloat16, Case::kNear>)->Arg(16 << 20);
BENCHMARK(DiffOf<DType::kFloat64, Case::kNear>)->Arg(16 << 20);
BENCHMARK(DiffOf<DType::kInt32, Case::kNear>)->Arg(16 << 20);
BENCHMARK(DiffOf<DType::kInt64, Case::kNear>)->Arg(16 << 20);

}  // namespace
}  // namespace msprobe::kernels
