#include "capture/devices/device_kernel.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "capture/devices/staging_ring.h"
#include "engine/kernels/stats_scalar.h"

namespace msprobe::capture {
namespace {

// What a kernel writes of a chunk beside its sums: four float32, four int32.
struct ChunkNumbers {
  float sum, squares, max, min;
};
struct ChunkCounts {
  int32_t nan, pos_inf, neg_inf, zero;
};

struct Chosen {
  DeviceKernel kernel;
  std::map<DType, bool> supported;
};
// Never destroyed: at exit the interpreter is gone before static destructors run.
Chosen& TheKernel() {
  static Chosen& chosen = *new Chosen;
  return chosen;
}

PyRef Index(int64_t number) { return PyRef::Steal(PyLong_FromLongLong(number)); }

}  // namespace

void SetDeviceKernel(DeviceKernel kernel) { TheKernel() = {std::move(kernel), {}}; }

const DeviceKernel* KernelFor(TorchCalls* torch, DType dtype) {
  Chosen& chosen = TheKernel();
  if (!chosen.kernel.measure) return nullptr;
  const auto [known, is_new] = chosen.supported.try_emplace(dtype, false);
  if (is_new) {
    const PyRef type = DTypeObject(torch, dtype);
    PyObject* const answer = PyObject_CallOneArg(chosen.kernel.supports.get(), type.get());
    known->second = torch->Checked(answer).get() == Py_True;
  }
  return known->second ? &chosen.kernel : nullptr;
}

size_t KernelBytes(const BlockSums& sums) {
  const size_t numbers = sizeof(ChunkNumbers) + sizeof(ChunkCounts);
  return static_cast<size_t>(sums.words()) * 8 + static_cast<size_t>(sums.chunks) * numbers +
         static_cast<size_t>(sums.tail) * DTypeSize(sums.dtype);
}

bool MeasureByKernel(TorchCalls* calls, const DeviceKernel& kernel, const PyRef& plain,
                     const BlockSums& sums, const FingerprintScratch& scratch, const PyRef& there) {
  TorchCalls& torch = *calls;
  int64_t at = 0;
  // The next `bytes` of the memory, as a tensor.
  const auto next = [&](int64_t bytes, DType dtype) {
    const PyRef range =
        torch.Call(there, "narrow", Index(0), Index(std::exchange(at, at + bytes)), Index(bytes));
    return torch.Call(range, "view", DTypeObject(&torch, dtype));
  };
  const int64_t rows = sums.chunks, all = sums.chunks * sums.blocks;
  const PyRef out =
      torch.Call(next(sums.words() * 8, DType::kInt64), "view", Index(2), Index(all), Index(8));
  const PyRef numbers = torch.Call(next(rows * 16, DType::kFloat32), "view", Index(rows), Index(4));
  const PyRef counts = torch.Call(next(rows * 16, DType::kInt32), "view", Index(rows), Index(4));
  const PyRef flat = torch.Call(plain, "view", Index(-1));
  const PyRef whole =
      torch.Call(flat, "narrow", Index(0), Index(0), Index(rows * kernels::kChunkElements));
  if (!torch.ok()) return false;
  PyObject* const arguments[] = {whole.get(),
                                 out.get(),
                                 numbers.get(),
                                 counts.get(),
                                 scratch.low_keys.get(),
                                 scratch.high_keys.get()};
  (void)torch.Checked(PyObject_Vectorcall(kernel.measure.get(), arguments, 6, nullptr));
  if (sums.tail > 0) {
    const auto bytes = sums.tail * static_cast<int64_t>(DTypeSize(sums.dtype));
    const PyRef last =
        torch.Call(flat, "narrow", Index(0), Index(sums.elements - sums.tail), Index(sums.tail));
    torch.Call(next(bytes, sums.dtype), "copy_", last);
  }
  return torch.ok();
}

kernels::Stats StatisticsFromKernel(const BlockSums& sums, const char* data) {
  const char* const numbers = data + sums.words() * 8;
  const char* const counts = numbers + static_cast<size_t>(sums.chunks) * sizeof(ChunkNumbers);
  const char* const tail = counts + static_cast<size_t>(sums.chunks) * sizeof(ChunkCounts);
  kernels::StatsNode node;
  node.hash = HashOfChunks(sums, data);
  for (int64_t i = 0; i < sums.chunks; ++i) {
    ChunkNumbers n;
    ChunkCounts c;
    std::memcpy(&n, numbers + static_cast<size_t>(i) * sizeof n, sizeof n);
    std::memcpy(&c, counts + static_cast<size_t>(i) * sizeof c, sizeof c);
    node.sum += n.sum;
    node.sum_squares += n.squares;
    node.max = std::max(node.max, static_cast<double>(n.max));
    node.min = std::min(node.min, static_cast<double>(n.min));
    node.nan += c.nan;
    node.pos_inf += c.pos_inf;
    node.neg_inf += c.neg_inf;
    node.zero += c.zero;
  }
  if (sums.tail > 0) {
    const auto* const elements = reinterpret_cast<const uint8_t*>(tail);
    node = kernels::StatsNode::Combine(
        node, kernels::ChunkStatsScalar(sums.dtype, elements, sums.tail, sums.chunks));
  }
  return kernels::FinishStats(node, sums.dtype, sums.elements);
}

}  // namespace msprobe::capture
