// The numbers of tensors that were read already. An activation is output of one call, input of the
// next ones, in- and output of modules: its memory is read once, as long as PyTorch's version
// counter of it stands.
//
//   KnownNumbers::Key key;
//   // none: it must be read
//   std::optional<Numbers> numbers = known.Find(tensor, view, asked, &key);
//   if (!numbers) known.Keep(key, tensor, Measure(view));
//
// Memory can change without the counter (a NumPy array over it, a kernel of another library,
// Tensor.data, another process). So each use compares a sample of cache lines
// (engine/kernels/line_sample.h); a storage for which it ever differs is read always, and so is
// memory that PyTorch does not own (torch.from_numpy). A small tensor is read always: asking for
// its storage takes as long (known_contents.h).
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/kernels/rest_stats.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// Of the extents of a view, in their order.
uint64_t HashOfShape(const TensorView& view);

// Needs the GIL. Never leaves a Python error set. Knows nothing in versions of PyTorch without
// Tensor.untyped_storage (before 2.0), and of tensors of inference mode, which have no version.
class KnownNumbers {
 public:
  // Reading a tensor of fewer bytes takes less time than finding out that it is known. 65536; tests
  // set MSPROBE_REUSE_BYTES to another number.
  static size_t FewestBytes();

  // What is computed of a tensor. Numbers of one kind do not stand for another.
  struct Asked {
    kernels::Checksum checksum = kernels::Checksum::kNone;
    bool rest = false, sketch = false;
    bool operator==(const Asked&) const = default;
  };
  struct Numbers {
    kernels::Stats stats;
    std::optional<kernels::RestStats> rest;
    std::optional<kernels::Sketch> sketch;
  };
  // What is known of a tensor before it is read; opaque.
  struct Key {
    bool keep = false;
    uintptr_t storage = 0, data = 0;
    int64_t count = 0, version = 0;
    uint64_t layout = 0;
    DType dtype = DType::kFloat32;
    Asked asked;
    uint64_t shape = 0;  // a sketch depends on it, other numbers do not
    size_t bytes = 0;
  };

  KnownNumbers() = default;
  ~KnownNumbers() { Forget(); }
  KnownNumbers(const KnownNumbers&) = delete;
  KnownNumbers& operator=(const KnownNumbers&) = delete;

  // `tensor` is the one that has the elements of `view` (TensorAccess::holder).
  std::optional<Numbers> Find(PyObject* tensor, const TensorView& view, Asked asked, Key* key);
  // The numbers of a tensor that Find did not know. They are not kept when the tensor changed while
  // it was read.
  void Keep(const Key& key, PyObject* tensor, const Numbers& numbers);
  void Forget();
  // The memory from `begin` to `end` was written in a way that PyTorch's version counter does not
  // tell.
  void Written(uintptr_t begin, uintptr_t end);

  // How often, and how many bytes, were not read again in this step.
  struct Saved {
    int64_t reads = 0, bytes = 0;
  };
  const Saved& saved() const { return saved_; }
  void NewStep() { saved_ = {}; }

 private:
  struct Entry {
    Key key;
    uint64_t sample;
    Numbers numbers;
  };
  struct Storage {
    uintptr_t identity = 0;  // of PyTorch's object; no other has it while `weak` is held
    PyObject* weak = nullptr;
    uintptr_t end = 0;  // of the part that is known
    int64_t version = 0;
    bool distrusted = false;
    std::vector<Entry> entries;
  };
  using Storages = std::map<uintptr_t, Storage>;  // by the first address that is known
  // Each call of Python may let another thread in here, even one that only makes an object: garbage
  // collection runs code. So what is erased is freed when no place in the map is in use any more.
  struct FreedLast {
    explicit FreedLast(KnownNumbers* numbers) : known(numbers) {}
    ~FreedLast() { known->FreeErased(); }
    KnownNumbers* known;
  };

  Storages::iterator At(uintptr_t address);
  Storages::iterator Erase(Storages::iterator at);
  void EraseAll();
  void FreeErased();
  // False: the storage is to be read always.
  bool Enter(const Key& key, PyObject* storage);

  static constexpr size_t kMostStorages = 4096;

  Storages storages_;
  std::vector<PyObject*> freed_;  // weak references of what was erased
  Saved saved_;
};

}  // namespace msprobe::capture
