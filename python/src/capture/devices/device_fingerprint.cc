#include "capture/devices/device_fingerprint.h"

#include <algorithm>
#include <vector>

#include "capture/devices/device_statistics.h"
#include "capture/devices/staging_ring.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/fingerprint.h"
#include "engine/kernels/stats_scalar.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {
namespace {

using kernels::kBlockStripes;
using kernels::kChunkElements;
using kernels::kHashKeys;

constexpr int64_t kBlockWords = kBlockStripes * 8;
constexpr size_t kBlockBytes = kBlockWords * 8;
// Two of 4 MB: a kernel of less would not fill a device.
constexpr int64_t kTileWords = int64_t{1} << 19;

PyRef Long(int64_t number) { return PyRef::Steal(PyLong_FromLongLong(number)); }

// torch.name(first, second, out=out)
void Compute(TorchCalls* torch, const char* name, const PyRef& first, const PyRef& second,
             const PyRef& out) {
  torch->CallWith("out", out.get(), torch->torch(), name, first, second);
}

// The sums of a tile's blocks: words [blocks, kBlockStripes, 8] -> [blocks, 8] each.
void AddTile(TorchCalls* calls, const PyRef& words, const FingerprintScratch& scratch,
             int64_t blocks, const PyRef& products, const PyRef& plain) {
  TorchCalls& torch = *calls;
  const PyRef shape[] = {Long(blocks), Long(kBlockStripes), Long(8)};
  const auto part = [&](const PyRef& memory) {
    const PyRef used = torch.Call(memory, "narrow", Long(0), Long(0), Long(blocks * kBlockWords));
    return torch.Call(used, "view", shape[0], shape[1], shape[2]);
  };
  const PyRef low = part(scratch.low), high = part(scratch.high);
  const PyRef half = Long(32), mask = Long(0xffffffff), stripes = Long(1);
  // (word + key) mod 2^32 of the low halves. The high key is added where the word has its high
  // half, so that nothing is carried into it.
  Compute(&torch, "add", words, scratch.low_keys, low);
  torch.Call(low, "bitwise_and_", mask);
  Compute(&torch, "add", words, scratch.high_keys, high);
  torch.Call(high, "bitwise_right_shift_",
             half);  // an arithmetic shift: the sign fills the high half
  torch.Call(high, "bitwise_and_", mask);
  torch.Call(low, "mul_", high);
  Compute(&torch, "sum", low, stripes, products);
  Compute(&torch, "sum", words, stripes, plain);
}

// A chunk's word (kernels::FinishChunk) from the sums of its blocks.
uint64_t ChunkWord(const BlockSums& sums, const uint64_t* products, const uint64_t* plain,
                   int64_t chunk) {
  uint64_t all[8] = {};
  for (int64_t b = 0; b < sums.blocks; ++b, products += 8, plain += 8) {
    for (size_t j = 0; j < 8; ++j) {
      if (b > 0) all[j] = kernels::ScrambleSum(all[j]);
      all[j] += products[j] + plain[j ^ 1];
    }
  }
  const size_t bytes = static_cast<size_t>(sums.blocks) * kBlockBytes;
  return kernels::FinishChunk(all, static_cast<uint64_t>(chunk), bytes);
}

// `flat`: of one dimension. `out`: sums.words() int64.
bool AddBlocksThere(TorchCalls* calls, const PyRef& flat, const BlockSums& sums,
                    const FingerprintScratch& scratch, const PyRef& out) {
  TorchCalls& torch = *calls;
  const int64_t all = sums.chunks * sums.blocks;
  const PyRef whole =
      torch.Call(flat, "narrow", Long(0), Long(0), Long(sums.chunks * kChunkElements));
  const PyRef words = torch.Call(torch.Call(whole, "view", torch.Constant("int64")), "view",
                                 Long(all), Long(kBlockStripes), Long(8));
  const PyRef both = torch.Call(out, "view", Long(2), Long(all), Long(8));
  const PyRef products = torch.Call(both, "select", Long(0), Long(0));
  const PyRef plain = torch.Call(both, "select", Long(0), Long(1));
  constexpr int64_t kTileBlocks = kTileWords / kBlockWords;
  for (int64_t first = 0; torch.ok() && first < all; first += kTileBlocks) {
    const int64_t blocks = std::min(kTileBlocks, all - first);
    const auto part = [&](const PyRef& of) {
      return torch.Call(of, "narrow", Long(0), Long(first), Long(blocks));
    };
    AddTile(&torch, part(words), scratch, blocks, part(products), part(plain));
  }
  return torch.ok();
}

}  // namespace

BlockSums::BlockSums(DType of, int64_t count)
    : dtype(of),
      elements(count),
      chunks(count / kChunkElements),
      tail(count % kChunkElements),
      blocks(kChunkElements * static_cast<int64_t>(DTypeSize(of)) /
             static_cast<int64_t>(kBlockBytes)) {}

FingerprintScratch NewFingerprintScratch(TorchCalls* torch, const PyRef& device,
                                         const PyRef& mark) {
  FingerprintScratch made;
  const PyRef tile = IntTuple(std::vector<int64_t>{kTileWords});
  const std::vector<int64_t> keys = {2, kBlockStripes, 8};
  made.low = NewMemory(torch, tile, DType::kInt64, device);
  made.high = NewMemory(torch, tile, DType::kInt64, device);
  made.host_keys = NewMemory(torch, IntTuple(keys), DType::kInt64, PyRef());
  const PyRef there = NewMemory(torch, IntTuple(keys), DType::kInt64, device);
  if (const char* const text = AddressOf(torch, made.host_keys)) {
    auto* const words = reinterpret_cast<uint64_t*>(const_cast<char*>(text));  // ours, and pinned
    for (int64_t i = 0; i < kBlockWords; ++i) {
      const uint64_t key = kHashKeys.word[i / 8][i % 8];
      words[i] = key & 0xffffffff;
      words[kBlockWords + i] = key & ~uint64_t{0xffffffff};
    }
  }
  torch->CallWith("non_blocking", Py_True, there, "copy_", made.host_keys);
  made.low_keys = torch->Call(there, "select", Long(0), Long(0));
  made.high_keys = torch->Call(there, "select", Long(0), Long(1));
  if (torch->ok()) made.mark = mark;
  return made;
}

size_t DigestBytes(const BlockSums& sums) {
  return static_cast<size_t>(sums.words()) * 8 + kReducedBytes +
         static_cast<size_t>(sums.tail) * DTypeSize(sums.dtype);
}

bool DigestThere(TorchCalls* calls, const PyRef& plain, const BlockSums& sums,
                 const FingerprintScratch& scratch, const PyRef& there) {
  TorchCalls& torch = *calls;
  const PyRef dtype = DTypeObject(&torch, sums.dtype);
  const auto size = static_cast<int64_t>(DTypeSize(sums.dtype));
  const auto part = [&](int64_t first, int64_t bytes, const PyRef& as) {
    return torch.Call(torch.Call(there, "narrow", Long(0), Long(first), Long(bytes)), "view", as);
  };
  const int64_t reduced = sums.words() * 8, tail = reduced + static_cast<int64_t>(kReducedBytes);
  const PyRef extremes = part(reduced, 2 * size, dtype);
  const PyRef two = part(reduced + 8, 8, torch.Constant("float32"));
  const PyRef out = part(0, reduced, torch.Constant("int64"));
  const PyRef flat = torch.Call(plain, "view", Long(-1));
  if (!ReduceThere(&torch, plain, extremes, two) ||
      !AddBlocksThere(&torch, flat, sums, scratch, out))
    return false;
  if (sums.tail > 0) {
    const PyRef last =
        torch.Call(flat, "narrow", Long(0), Long(sums.elements - sums.tail), Long(sums.tail));
    torch.Call(part(tail, sums.tail * size, dtype), "copy_", last);
  }
  return torch.ok();
}

uint64_t HashOfChunks(const BlockSums& sums, const char* out) {
  const auto* const products = reinterpret_cast<const uint64_t*>(out);
  const uint64_t* const plain = products + sums.words() / 2;
  uint64_t hash = 0;
  for (int64_t chunk = 0; chunk < sums.chunks; ++chunk) {
    const int64_t at = chunk * sums.blocks * 8;
    hash += ChunkWord(sums, products + at, plain + at, chunk);
  }
  return hash;
}

kernels::Stats StatisticsFromDigest(const BlockSums& sums, const char* data) {
  const char* const reduced = data + sums.words() * 8;
  kernels::Stats stats = StatisticsFromReduced(reduced, sums.dtype, sums.elements);
  uint64_t hash = HashOfChunks(sums, data);
  const size_t size = DTypeSize(sums.dtype);
  if (sums.tail > 0) {
    const auto* const tail = reinterpret_cast<const uint8_t*>(reduced + kReducedBytes);
    hash += kernels::HashScalar(tail, static_cast<size_t>(sums.tail) * size,
                                static_cast<uint64_t>(sums.chunks));
  }
  stats.fingerprint = kernels::FinishFingerprint(hash, static_cast<unsigned>(sums.dtype),
                                                 static_cast<uint64_t>(sums.elements) * size);
  return stats;
}

KnownMemory::KnownMemory() {
  TorchCalls torch;
  bytes_ = NewMemory(&torch, IntTuple(std::vector<int64_t>{kBytes}), DType::kUInt8, PyRef());
  data_ = AddressOf(&torch, bytes_);
  if (data_ == nullptr) return;
  auto* const words = reinterpret_cast<uint32_t*>(const_cast<char*>(data_));  // ours
  for (int64_t i = 0; i < kBytes / 4; ++i)
    words[i] = static_cast<uint32_t>(kernels::Mix64(static_cast<uint64_t>(i)) >> 20);
}

const KnownMemory& KnownMemory::Get() {
  static const KnownMemory& known = *new KnownMemory;  // for ever: Python is gone at exit
  return known;
}

uint64_t KnownMemory::Fingerprint(DType dtype) const {
  const std::vector<int64_t> extents = {kBytes / static_cast<int64_t>(DTypeSize(dtype))};
  const TensorView view{.data = data_, .dtype = dtype, .ndim = 1, .shape = extents.data()};
  return kernels::ComputeStats(view).fingerprint;
}

}  // namespace msprobe::capture
