#include "capture/values/known_numbers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"
#include "engine/kernels/line_sample.h"

namespace msprobe::capture {
namespace {

uintptr_t Address(PyObject* number) {
  const PyRef keep = PyRef::Steal(number);
  void* value = keep ? PyLong_AsVoidPtr(keep.get()) : nullptr;
  ClearError();
  return reinterpret_cast<uintptr_t>(value);
}

// 0: row-major. Another number for each other order of elements that fill one range of memory
// without gaps. nullopt: there are gaps, or elements that share memory.
std::optional<uint64_t> LayoutOfMemory(const TensorView& view) {
  if (view.IsContiguous()) return 0;
  constexpr int kMostDims = 8;
  if (view.ndim > kMostDims) return std::nullopt;
  std::array<int, kMostDims> order;
  int dims = 0;
  uint64_t layout = 1469598103934665603;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.shape[i] != 1) order[static_cast<size_t>(dims++)] = i;
    for (const int64_t number : {view.shape[i], view.strides[i]})
      layout = (layout ^ static_cast<uint64_t>(number)) * 1099511628211;
  }
  std::sort(order.begin(), order.begin() + dims,
            [&](int a, int b) { return view.strides[a] < view.strides[b]; });
  int64_t stride = 1;
  for (int i = 0; i < dims; ++i) {
    const int dim = order[static_cast<size_t>(i)];
    if (view.strides[dim] != stride) return std::nullopt;
    stride *= view.shape[dim];
  }
  return layout | 1;
}

bool SameTensor(const KnownNumbers::Key& a, const KnownNumbers::Key& b) {
  return a.data == b.data && a.count == b.count && a.dtype == b.dtype && a.layout == b.layout &&
         a.asked == b.asked && a.shape == b.shape;
}

}  // namespace

uint64_t HashOfShape(const TensorView& view) {
  uint64_t shape = 1469598103934665603;
  for (int i = 0; i < view.ndim; ++i)
    shape = (shape ^ static_cast<uint64_t>(view.shape[i])) * 1099511628211;
  return shape;
}

size_t KnownNumbers::FewestBytes() {
  static const size_t fewest = [] {
    const char* wanted = std::getenv("MSPROBE_REUSE_BYTES");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : size_t{1} << 16;
  }();
  return fewest;
}

std::optional<KnownNumbers::Numbers> KnownNumbers::Find(PyObject* tensor, const TensorView& view,
                                                        Asked asked, Key* key) {
  const TorchApi& torch = TorchApi::Get();
  if (!torch.tells_storages() || !torch.IsPlainTensor(tensor)) return std::nullopt;
  const int64_t count = view.numel();
  const auto data = reinterpret_cast<uintptr_t>(view.data);
  const auto bytes = static_cast<size_t>(count) * DTypeSize(view.dtype);
  const bool is_small = bytes < FewestBytes();
  if (is_small && At(data) == storages_.end()) return std::nullopt;
  const int64_t version = torch.VersionOf(tensor);
  if (is_small) {
    // A small part of a known tensor: a version that has moved on says that the whole may be
    // another.
    const auto at = At(data);
    if (at != storages_.end() && version != at->second.version) at->second.entries.clear();
    return std::nullopt;
  }
  const std::optional<uint64_t> layout = LayoutOfMemory(view);
  if (version < 0) return std::nullopt;
  const PyRef storage = PyRef::Steal(torch.untyped_storage(tensor));
  if (!storage) ClearError();
  const uintptr_t identity = storage ? Address(torch.storage_address(storage.get())) : 0;
  if (identity == 0) return std::nullopt;
  const FreedLast freed(this);
  auto at = At(data);
  if (at != storages_.end() && at->second.identity != identity) at = Erase(at);
  const bool is_known = at != storages_.end() && at->second.identity == identity;
  if (is_known && at->second.distrusted) return std::nullopt;
  if (is_known && at->second.version != version) {
    at->second.entries.clear();
    at->second.version = version;
  }
  if (!layout) return std::nullopt;
  *key = {.keep = true,
          .storage = identity,
          .data = data,
          .count = count,
          .version = version,
          .layout = *layout,
          .dtype = view.dtype,
          .asked = asked,
          .shape = asked.sketch ? HashOfShape(view) : 0,
          .bytes = bytes};
  if (is_known) {
    for (const Entry& entry : at->second.entries) {
      if (!SameTensor(entry.key, *key)) continue;
      if (entry.sample == kernels::SampleLines(view.data, bytes)) {
        ++saved_.reads;
        saved_.bytes += static_cast<int64_t>(bytes);
        return entry.numbers;
      }
      at->second.distrusted = true;
      at->second.entries.clear();
      key->keep = false;
      return std::nullopt;
    }
  }
  if (!Enter(*key, storage.get())) key->keep = false;
  return std::nullopt;
}

void KnownNumbers::Keep(const Key& key, PyObject* tensor, const Numbers& numbers) {
  if (!key.keep || TorchApi::Get().VersionOf(tensor) != key.version) return;
  // Another thread may have run while the tensor was read.
  const auto at = At(key.data);
  if (at == storages_.end() || at->second.identity != key.storage ||
      at->second.version != key.version || at->second.distrusted)
    return;
  // The tensor has just been read: its lines are in the cache.
  const void* data = reinterpret_cast<const void*>(key.data);
  at->second.entries.push_back({key, kernels::SampleLines(data, key.bytes), numbers});
}

bool KnownNumbers::Enter(const Key& key, PyObject* storage) {
  Storage joined{.identity = key.storage,
                 .weak = TorchApi::Get().storage_weak(storage),
                 .end = key.data + key.bytes,
                 .version = key.version};
  if (joined.weak == nullptr) {
    ClearError();
    return false;
  }
  const PyRef resizable = PyRef::Steal(TorchApi::Get().storage_resizable(storage));
  if (!resizable) ClearError();
  joined.distrusted = resizable.get() != Py_True;
  if (storages_.size() >= kMostStorages) EraseAll();
  // What lies there and belongs to another storage was freed.
  auto at = storages_.lower_bound(key.data);
  if (at != storages_.begin() && std::prev(at)->second.end > key.data) --at;
  const uintptr_t end = joined.end;
  uintptr_t first = key.data;
  while (at != storages_.end() && at->first < end) {
    Storage& old = at->second;
    if (old.identity == key.storage) {  // parts of one storage become one
      first = std::min(first, at->first);
      joined.end = std::max(joined.end, old.end);
      joined.distrusted = joined.distrusted || old.distrusted;
      if (old.version == key.version)
        std::move(old.entries.begin(), old.entries.end(), std::back_inserter(joined.entries));
    }
    at = Erase(at);
  }
  return !storages_.emplace(first, std::move(joined)).first->second.distrusted;
}

KnownNumbers::Storages::iterator KnownNumbers::At(uintptr_t address) {
  auto found = storages_.upper_bound(address);
  if (found == storages_.begin()) return storages_.end();
  --found;
  return address < found->second.end ? found : storages_.end();
}

KnownNumbers::Storages::iterator KnownNumbers::Erase(Storages::iterator at) {
  freed_.push_back(at->second.weak);
  return storages_.erase(at);
}

void KnownNumbers::EraseAll() {
  for (auto at = storages_.begin(); at != storages_.end();) at = Erase(at);
}

void KnownNumbers::FreeErased() {
  for (PyObject* const erased : std::exchange(freed_, {})) {
    const PyRef weak = PyRef::Steal(erased);
    const PyRef done =
        PyRef::Steal(PyObject_CallOneArg(TorchApi::Get().free_storage_weak, weak.get()));
    if (!done) ClearError();
  }
}

void KnownNumbers::Written(uintptr_t begin, uintptr_t end) {
  auto at = storages_.lower_bound(begin);
  if (at != storages_.begin() && std::prev(at)->second.end > begin) --at;
  for (; at != storages_.end() && at->first < end; ++at) at->second.entries.clear();
}

void KnownNumbers::Forget() {
  EraseAll();
  FreeErased();
}

}  // namespace msprobe::capture
