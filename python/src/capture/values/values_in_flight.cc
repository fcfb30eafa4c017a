#include "capture/values/values_in_flight.h"

#include <algorithm>
#include <utility>

#include "capture/python/attributes.h"
#include "capture/python/process_group.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "engine/kernels/find_nonfinite.h"

namespace msprobe::capture {
namespace {

// The addresses from the first to the last byte of a view.
std::pair<uintptr_t, uintptr_t> ExtentOf(const TensorView& view) {
  auto begin = reinterpret_cast<uintptr_t>(view.data), end = begin;
  if (view.numel() == 0) return {begin, begin};
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  int64_t low = 0, high = size;
  if (view.strides == nullptr) {
    high = view.numel() * size;
  } else {
    for (int i = 0; i < view.ndim; ++i) {
      const int64_t reach = (view.shape[i] - 1) * view.strides[i] * size;
      (reach < 0 ? low : high) += reach;
    }
  }
  return {begin + static_cast<uintptr_t>(low), end + static_cast<uintptr_t>(high)};
}

// A weak reference to the storage of a tensor; null where PyTorch has none (before 2.0).
PyRef WeakStorage(PyObject* tensor) {
  PyObject* const make = TorchApi::Get().storage_weak_ref;
  if (make == nullptr) return PyRef();
  const QuietTorch quiet(tensor);
  const PyRef storage = PyRef::Steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  PyRef weak = storage ? PyRef::Steal(PyObject_CallOneArg(make, storage.get())) : PyRef();
  ClearError();
  return weak;
}

}  // namespace

bool IsFreed(const PyRef& storage) { return Call(storage, "expired").get() != Py_False; }

bool Overlap(PyObject* a, PyObject* b) {
  TensorAccess one(a, Fetch::kNever), other(b, Fetch::kNever);
  if ((one.awaits() && !one.ReadAnyway()) || (other.awaits() && !other.ReadAnyway())) return false;
  if (!one.readable() || !other.readable()) return false;
  const auto [begin, end] = ExtentOf(one.view());
  const auto [first, last] = ExtentOf(other.view());
  return begin < last && first < end;
}

void ForgetNumbersOf(const std::vector<PyRef>& arguments, KnownNumbers* known) {
  const auto forget = [&](const auto& again, PyObject* value) -> void {
    if (PyList_Check(value) || PyTuple_Check(value)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
        again(again, PySequence_Fast_GET_ITEM(value, i));
      return;
    }
    PyRef tensor = PyRef::Borrow(value);
    if (IsPointToPoint(value)) {
      tensor = PyRef::Steal(PyObject_GetAttrString(value, "tensor"));
      ClearError();
    }
    if (!tensor || !TorchApi::Get().IsTensor(tensor.get())) return;
    const TensorAccess access(tensor.get(), Fetch::kNever);
    if (!access.readable()) return;
    const auto [begin, end] = ExtentOf(access.view());
    known->Written(begin, end);
  };
  for (const PyRef& argument : arguments) forget(forget, argument.get());
}

void ValuesInFlight::Begin(const void* collective, const std::vector<PyRef>& values,
                           IsDone is_done) {
  for (const PyRef& value : values) Add(collective, value.get(), is_done);
}

void ValuesInFlight::Add(const void* collective, PyObject* value, const IsDone& is_done) {
  if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
      Add(collective, PySequence_Fast_GET_ITEM(value, i), is_done);
    return;
  }
  if (IsPointToPoint(value)) {
    const PyRef function = PyRef::Steal(PyObject_GetAttrString(value, "op"));
    const PyRef tensor = PyRef::Steal(PyObject_GetAttrString(value, "tensor"));
    const PyRef name =
        function ? PyRef::Steal(PyObject_GetAttrString(function.get(), "__name__")) : PyRef();
    ClearError();
    if (tensor && Utf8(name.get()) == "irecv") Add(collective, tensor.get(), is_done);
    return;
  }
  if (!TorchApi::Get().IsTensor(value)) return;
  TensorAccess access(value, Fetch::kNever);
  if (access.awaits() && !access.ReadAnyway()) return;
  if (!access.readable() || access.resolved() != nullptr) return;
  const auto [begin, end] = ExtentOf(access.view());
  if (begin == end) return;
  std::erase_if(ended_, [begin = begin, end = end](const Ended& e) {
    return e.begin < end && begin < e.end;
  });
  memory_.push_back({collective, PyRef::Borrow(access.holder()), begin, end, is_done});
}

bool ValuesInFlight::Covers(uintptr_t begin, uintptr_t end) {
  return std::any_of(memory_.begin(), memory_.end(), [&](const Memory& m) {
    return m.begin < end && begin < m.end && !(m.is_done && m.is_done());
  });
}

int64_t ValuesInFlight::Ask(TensorAccess* access, const ValueOptions& options,
                            const EntryStyle& style, const std::string& file) {
  if (style.reading != Reading::kMeasured || (memory_.empty() && ended_.empty())) return -1;
  const bool awaits = access->awaits();
  if (awaits && !access->ReadAnyway()) return -1;
  if (!access->readable() || access->resolved() != nullptr) return -1;
  const auto [begin, end] = ExtentOf(access->view());
  if (!Covers(begin, end)) {
    const bool ended =
        std::any_of(ended_.begin(), ended_.end(), [begin = begin, end = end](const Ended& e) {
          return e.begin < end && begin < e.end && !IsFreed(e.storage);
        });
    // Of an AsyncCollectiveTensor whose collective was not seen it is not known whether it has
    // come.
    if (awaits && !ended) access->Refuse();
    return -1;
  }
  access->Await();
  if (style.held != nullptr) {
    access->Refuse();
    return -1;
  }
  waiting_.push_back(
      {next_ticket_, PyRef::Borrow(access->holder()), AskedBy(options), style.locate, file});
  return next_ticket_++;
}

DeferredNumbers ValuesInFlight::Measure(const Waiting& waiting, const ValueOptions& options) const {
  DeferredNumbers numbers{.ticket = waiting.ticket, .has_fingerprint = true};
  TensorAccess access(waiting.tensor.get());
  if (options.slicer != nullptr) access.Slice(*options.slicer);
  const TensorView& view = access.view();
  KnownNumbers::Numbers found = MeasureWithoutGil(view, waiting.asked);
  numbers.stats = found.stats;
  numbers.rest = found.rest;
  numbers.sketch = found.sketch;
  if (waiting.locate && found.stats.nan + found.stats.pos_inf + found.stats.neg_inf > 0)
    numbers.first_nonfinite = kernels::FirstNonfinite(view);
  if (!waiting.file.empty()) numbers.file_is_lost = !options.store(waiting.file, view);
  return numbers;
}

void ValuesInFlight::End(const void* collective, const ValueOptions& options) {
  std::erase_if(memory_, [&](Memory& m) {
    if (m.collective != collective) return false;
    if (PyRef storage = WeakStorage(m.tensor.get()))
      ended_.push_back({m.begin, m.end, std::move(storage)});
    return true;
  });
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const TensorAccess access(waiting.tensor.get(), Fetch::kNever);
    const auto [begin, end] = ExtentOf(access.view());
    if (Covers(begin, end)) return false;
    arrived_.push_back(Measure(waiting, options));
    return true;
  });
  constexpr size_t kManyEnded = 64;
  if (ended_.size() > kManyEnded)
    std::erase_if(ended_, [](const Ended& e) { return IsFreed(e.storage); });
}

std::vector<DeferredNumbers> ValuesInFlight::Take() { return std::exchange(arrived_, {}); }

void ValuesInFlight::Forget() {
  memory_.clear();
  ended_.clear();
  waiting_.clear();
}

}  // namespace msprobe::capture
