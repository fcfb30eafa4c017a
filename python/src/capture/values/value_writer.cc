#include "capture/values/value_writer.h"

#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"
#include "capture/values/device_stats.h"
#include "capture/values/distributed_tensor.h"
#include "capture/values/numpy_array.h"
#include "capture/values/tensor_access.h"
#include "engine/base/threads.h"
#include "engine/kernels/find_nonfinite.h"

namespace msprobe::capture {
namespace {

// Below this many bytes, giving up the GIL costs more than it gives to others.
constexpr int64_t kReleaseGilBytes = 1 << 20;
constexpr int64_t kParallelBytes = 1 << 19;

// What an entry says of a tensor or array, but for the place it goes to.
struct Measured {
  kernels::Stats stats;
  dump::TensorFields fields;

  // `access`, a TensorAccess or NumpyArray, must outlive this object.
  template <typename Access>
  Measured(const Access& access, const ValueOptions& options, EntryStyle style, int64_t ticket) {
    fields.type = access.type();
    fields.dtype = access.dtype();
    fields.shape = access.shape();
    fields.statistics = options.numbers && options.summary.statistics;
    fields.fingerprint = options.numbers && !options.for_lines;
    fields.with_counts = !options.for_lines;
    if constexpr (requires { access.device_mesh(); }) {
      fields.device_mesh = access.device_mesh();
      fields.placements = access.placements();
      if (ticket >= 0) {
        fields.later = ticket;
        SetElementType(access.element_type());
      }
    }
    if (!access.readable() || style.reading != Reading::kMeasured) return;
    const TensorView& view = access.view();
    if (options.numbers) fields.checksum = options.summary.checksum;
    stats = MeasureTensor(view, fields.checksum);
    fields.stats = &stats;
    SetElementType(view.dtype);
    fields.counts = style.locate;
    if (style.locate && stats.nan + stats.pos_inf + stats.neg_inf > 0)
      fields.first_nonfinite = kernels::FirstNonfinite(view);
  }
  Measured(const Measured&) = delete;

  void SetElementType(DType dtype) {
    fields.kind = DTypeKindOf(dtype);
    fields.is_unsigned64 = dtype == DType::kUInt64;
    fields.is_narrow_float = IsNarrowFloat(dtype);
  }
};

// Whether a tensor's elements are needed here at once.
Fetch FetchFor(const ValueOptions& options, EntryStyle style) {
  if (style.reading != Reading::kMeasured) return Fetch::kNever;
  const bool only_statistics = options.numbers && options.summary.statistics &&
                               options.summary.checksum == kernels::Checksum::kNone;
  if (options.device == nullptr || !only_statistics || style.store || style.locate ||
      style.held != nullptr || options.slicer != nullptr)
    return Fetch::kAlways;
  static const bool takes_host = DeviceStats::TakesHost();
  return takes_host ? Fetch::kNothing : Fetch::kNever;
}

// The ticket under which statistics of a tensor on a device come later; -1: they are taken here.
int64_t TicketFor(TensorAccess* access, const ValueOptions& options, EntryStyle style) {
  if (!access->on_device() || style.reading != Reading::kMeasured) return -1;
  const int64_t ticket = options.device->Add(access->holder(), access->element_type());
  if (ticket < 0) access->FetchNow();
  return ticket;
}

// Stores the elements now, or keeps the value for later. False: could not be stored.
bool Keep(PyObject* value, const TensorView& view, const kernels::Stats& stats,
          const ValueOptions& options, EntryStyle style, const std::string& file_name) {
  if (style.held == nullptr) return options.store(file_name, view);
  style.held->push_back({PyRef::Borrow(value), file_name, stats.fingerprint,
                         view.numel() * static_cast<int64_t>(DTypeSize(view.dtype))});
  return true;
}

}  // namespace

kernels::Stats MeasureTensor(const TensorView& view, kernels::Checksum checksum) {
  const int64_t bytes = view.numel() * static_cast<int64_t>(DTypeSize(view.dtype));
  ThreadPool* pool = bytes >= kParallelBytes ? &ThreadPool::Default() : nullptr;
  if (bytes < kReleaseGilBytes) return kernels::ComputeStats(view, pool, checksum);
  const ReleasedGil released;
  return kernels::ComputeStats(view, pool, checksum);
}

void AppendTensorJson(std::string* out, PyObject* tensor, const ValueOptions& options,
                      EntryStyle style, const std::string& file_name, Nonfinite* nonfinite) {
  TensorAccess access(tensor, file_name.empty() ? FetchFor(options, style) : Fetch::kAlways);
  const int64_t ticket = TicketFor(&access, options, style);
  if (options.slicer != nullptr) access.Slice(*options.slicer);
  Measured measured(access, options, style, ticket);
  if (nonfinite != nullptr) nonfinite->Add(measured.stats);
  measured.fields.requires_grad = TorchApi::Get().RequiresGrad(tensor);
  if (!file_name.empty() && access.readable()) {
    const bool kept = Keep(tensor, access.view(), measured.stats, options, style, file_name);
    measured.fields.data_name = kept ? std::string_view(file_name) : "-1";
  }
  dump::AppendTensor(out, measured.fields);
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* const* values,
                       Py_ssize_t count) {
  List(key, category, nullptr, values, count);
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* self,
                       PyObject* const* values, Py_ssize_t count) {
  b_.BeginSlot(key, category, '[');
  Py_ssize_t first = 0;
  if (self != nullptr) ValueAt(first++, self);
  for (Py_ssize_t i = 0; i < count; ++i) ValueAt(first + i, values[i]);
  b_.EndSlot(']');
}

void ValueWriter::Dict(std::string_view key, std::string_view category, PyObject* dict,
                       bool leave_out_none) {
  b_.BeginSlot(key, category, '{');
  PyObject *name, *value;
  for (Py_ssize_t position = 0; dict != nullptr && PyDict_Next(dict, &position, &name, &value);) {
    if (leave_out_none && value == Py_None) continue;
    const PyRef keep_name = PyRef::Borrow(name),
                keep_value = PyRef::Borrow(value);  // the GIL may be given up below
    b_.Key(Utf8(name));
    if (ignored_ != nullptr && ignored_->Has(Utf8(name)))
      Ignored(value);
    else
      Value(value, 1);
  }
  b_.EndSlot('}');
}

void ValueWriter::Names(std::string_view key, std::string_view category, PyObject* names,
                        PyObject* const* values) {
  b_.BeginSlot(key, category, '{');
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const std::string_view name = Utf8(PyTuple_GET_ITEM(names, i));
    b_.Key(name);
    if (ignored_ != nullptr && ignored_->Has(name))
      Ignored(values[i]);
    else
      Value(values[i], 1);
  }
  b_.EndSlot('}');
}

void ValueWriter::Output(std::string_view key, std::string_view category, PyObject* result) {
  if (options_.for_lines && !PyTuple_Check(result) && !PyList_Check(result)) {
    b_.BeginBareSlot(key, category);
    ValueAt(0, result);
    b_.EndBareSlot();
    return;
  }
  b_.BeginSlot(key, category, '[');
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(result); ++i) {
      const PyRef item = PyRef::Borrow(PySequence_Fast_GET_ITEM(result, i));
      ValueAt(i, item.get());
    }
  } else if (PyTuple_Check(result) && !PyObject_HasAttrString(result, "_fields")) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i)
      ValueAt(i, PyTuple_GET_ITEM(result, i));  // torch.return_types.*
  } else {
    ValueAt(0, result);
  }
  b_.EndSlot(']');
}

void ValueWriter::ValueAt(int64_t position, PyObject* value) {
  if (ignored_ != nullptr && ignored_->Has(position)) return Ignored(value);
  Value(value);
}

void ValueWriter::Ignored(PyObject* value) {
  b_.Null();
  // Gradients are recorded: its tensors are to be known.
  dump::EntryBuilder nowhere;
  nowhere.Begin("");
  nowhere.BeginSlot("", "", '[');
  ValueWriter walk(&nowhere, options_, EntryStyle{Reading::kMet});
  walk.Value(value);
  tensors_.insert(tensors_.end(), walk.tensors_.begin(), walk.tensors_.end());
  tracing_ = tracing_ || walk.tracing_;
}

void ValueWriter::TensorValue(PyObject* tensor) {
  const TorchApi& torch = TorchApi::Get();
  if (torch.IsTracing(tensor) || (IsDTensor(tensor) && torch.IsTracing(LocalShard(tensor).get()))) {
    tracing_ = true;
    b_.Null();
    return;
  }
  tensors_.push_back(tensor);
  if (style_.reading == Reading::kMet) {
    b_.Null();
    return;
  }
  TensorAccess access(tensor, FetchFor(options_, style_));
  const int64_t ticket = TicketFor(&access, options_, style_);
  if (options_.slicer != nullptr) access.Slice(*options_.slicer);
  Measure(access, tensor, torch.RequiresGrad(tensor), ticket);
}

template <typename Access>
void ValueWriter::Measure(const Access& access, PyObject* value, int requires_grad,
                          int64_t ticket) {
  Measured measured(access, options_, style_, ticket);
  nonfinite_.Add(measured.stats);
  measured.fields.requires_grad = requires_grad;
  std::string file_name;
  if (style_.store && access.readable()) {
    file_name = b_.TensorFileName();
    if (!Keep(value, access.view(), measured.stats, options_, style_, file_name)) file_name = "-1";
    measured.fields.data_name = file_name;
  }
  b_.Tensor(measured.fields);
}

void ValueWriter::ArrayValue(PyObject* array) {
  style_.reading != Reading::kMet
      ? Measure(NumpyArray(array), array, /*requires_grad=*/-1, /*ticket=*/-1)
      : b_.Null();
}

}  // namespace msprobe::capture
