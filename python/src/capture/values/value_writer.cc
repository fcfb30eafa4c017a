#include "capture/values/value_writer.h"

#include <algorithm>
#include <span>

#include "capture/devices/device_reader.h"
#include "capture/python/framework.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"
#include "capture/values/distributed_tensor.h"
#include "capture/values/framework_tensor.h"
#include "capture/values/known_contents.h"
#include "capture/values/known_numbers.h"
#include "capture/values/numpy_array.h"
#include "capture/values/tensor_access.h"
#include "capture/values/unwritten_memory.h"
#include "capture/values/values_in_flight.h"
#include "engine/base/threads.h"
#include "engine/kernels/find_nonfinite.h"
#include "engine/kernels/rest_stats.h"

namespace msprobe::capture {

struct Coming {
  int64_t ticket = -1;  // -1: they are computed here
  std::shared_ptr<LateTensor> late = {};
  std::shared_ptr<HeldElements> elements = {};
};

namespace {

// Below this many bytes, releasing the GIL costs more than other threads gain.
constexpr int64_t kReleaseGilBytes = 1 << 20;
constexpr int64_t kParallelBytes = 1 << 19;

int64_t Bytes(const TensorView& view) {
  return view.numel() * static_cast<int64_t>(DTypeSize(view.dtype));
}

// compute(pool) of a tensor: by several threads, and without the GIL, where it is large enough.
template <typename Compute>
auto ComputeOver(const TensorView& view, Compute compute) {
  ThreadPool* pool = Bytes(view) >= kParallelBytes ? &ThreadPool::Default() : nullptr;
  if (Bytes(view) < kReleaseGilBytes) return compute(pool);
  const ReleasedGil released;
  return compute(pool);
}

// The numbers that `asked` names, by reading the tensor.
KnownNumbers::Numbers Measure(const TensorView& view, KnownNumbers::Asked asked, ThreadPool* pool) {
  KnownNumbers::Numbers numbers;
  // The statistics of one element say what it is.
  const bool sketched = asked.sketch && view.numel() > 1;
  numbers.stats =
      kernels::ComputeStats(view, pool, asked.checksum, sketched ? &numbers.sketch : nullptr);
  // Takes no time for a tensor without extremes.
  if (asked.rest) numbers.rest = kernels::ComputeRestStats(view, numbers.stats, pool);
  if (sketched && !numbers.sketch)
    numbers.sketch = kernels::ComputeSketch(view, pool, kernels::SketchOfRest(numbers.rest));
  return numbers;
}

KnownNumbers::Numbers ReadNumbers(const TensorView& view, KnownNumbers::Asked asked,
                                  KnownContents* contents) {
  if (contents != nullptr && KnownContents::Fits(view))
    return contents->Get(view, asked, [&] { return Measure(view, asked, nullptr); });
  return ComputeOver(view, [&](ThreadPool* pool) { return Measure(view, asked, pool); });
}

KnownNumbers::Numbers ReadNumbers(const TensorView& view, const ValueOptions& options) {
  return ReadNumbers(view, AskedBy(options), options.contents);
}

// The same without reading the tensor where its numbers are known.
KnownNumbers::Numbers NumbersOf(const TensorAccess& access, const ValueOptions& options) {
  const TensorView& view = access.view();
  if (options.known == nullptr || access.resolved() != nullptr || options.slicer != nullptr)
    return ReadNumbers(view, options);
  KnownNumbers::Key key;
  if (std::optional<KnownNumbers::Numbers> known =
          options.known->Find(access.holder(), view, AskedBy(options), &key))
    return *known;
  KnownNumbers::Numbers numbers = ReadNumbers(view, options);
  options.known->Keep(key, access.holder(), numbers);
  return numbers;
}

template <typename Access>
KnownNumbers::Numbers NumbersOf(const Access& access, const ValueOptions& options) {
  if constexpr (requires { access.measured(); }) {
    if (access.measured() != nullptr) return *access.measured();
  }
  return ReadNumbers(access.view(), options);
}

// Into a member that is empty. What few tensors have is not copied for the others.
template <typename Member>
void TakeIfAny(const Member& from, Member* member) {
  if (!from.empty()) *member = from;
}

// Fills all members of a new TensorValue but `file`, from a TensorAccess or NumpyArray. `ticket`:
// the number under which a device delivers the statistics; -1: they are computed here.
template <typename Access>
void Describe(const Access& access, const ValueOptions& options, EntryStyle style, int64_t ticket,
              TensorValue* value) {
  if (value->type != access.type()) value->type = access.type();
  value->dtype = access.dtype();
  value->shape.assign(access.shape().begin(), access.shape().end());
  value->with_statistics = options.numbers && options.summary.statistics;
  value->with_fingerprint = options.numbers && !options.for_pkl;
  value->with_counts = (value->with_statistics && !options.for_pkl) || style.locate;
  if constexpr (requires { access.unreadable(); })
    TakeIfAny(access.unreadable(), &value->unreadable);
  if constexpr (requires { access.device_mesh(); }) {
    TakeIfAny(access.device_mesh(), &value->device_mesh);
    TakeIfAny(access.placements(), &value->placements);
    TakeIfAny(access.global_shape(), &value->global_shape);
    TakeIfAny(access.batch_dims(), &value->vmap);
    if (ticket >= 0) {
      value->numbers = TensorValue::Numbers::kDeferred;
      value->ticket = ticket;
      value->element_type = access.element_type();
      if (options.numbers) value->checksum = options.summary.checksum;
    }
    if (!options.for_pkl && style.reading == Reading::kMeasured) {
      const std::span<const int64_t> strides = access.strides();
      value->strides.assign(strides.begin(), strides.end());
    }
  }
  if (!access.readable() || ticket >= 0 || style.reading != Reading::kMeasured) return;
  const TensorView& view = access.view();
  if constexpr (!requires { access.strides(); }) {
    if (!options.for_pkl && view.strides != nullptr && !view.IsContiguous())
      value->strides.assign(view.strides, view.strides + view.ndim);
  }
  if (options.numbers) value->checksum = options.summary.checksum;
  KnownNumbers::Numbers numbers = NumbersOf(access, options);
  value->stats = numbers.stats;
  value->rest = numbers.rest;
  value->sketch = numbers.sketch;
  value->numbers = TensorValue::Numbers::kHere;
  value->element_type = view.dtype;
  const kernels::Stats& stats = value->stats;
  if (style.locate && stats.nan + stats.pos_inf + stats.neg_inf > 0)
    value->first_nonfinite = kernels::FirstNonfinite(view);
}

// Whether a tensor's elements are needed on the host at once.
Fetch FetchFor(const ValueOptions& options, EntryStyle style) {
  if (style.reading != Reading::kMeasured) return Fetch::kNever;
  if (options.device == nullptr || options.slicer != nullptr) return Fetch::kAlways;
  static const bool takes_host = DeviceReader::TakesHost();
  if (!takes_host) return Fetch::kNever;
  const bool only_statistics = options.numbers && options.summary.statistics &&
                               options.summary.checksum == kernels::Checksum::kNone;
  return only_statistics && !style.store && !style.locate && !options.bits && style.held == nullptr
             ? Fetch::kNothing
             : Fetch::kAlways;
}

// Asks the device for a tensor, or the collective that still writes it. `file`: the tensor file
// that gets its elements, at once or when it is decided; "": none.
Coming ComingOf(TensorAccess* access, const ValueOptions& options, EntryStyle style,
                const std::string& file) {
  Coming coming;
  if (options.in_flight != nullptr) {
    coming.ticket = options.in_flight->Ask(access, options, style, file);
    if (coming.ticket >= 0) return coming;
  }
  if (!access->on_device() || style.reading != Reading::kMeasured) return coming;
  if (style.held != nullptr) {
    coming.late = std::make_shared<LateTensor>();
    if (!file.empty())
      coming.elements = HeldElements::Reserve(access->element_type(), access->shape());
    coming.late->elements = coming.elements;
  }
  const KnownNumbers::Asked asked = AskedBy(options);
  coming.ticket =
      options.device->Ask(access->holder(), {.dtype = access->element_type(),
                                             .shape = access->shape(),
                                             .checksum = asked.checksum,
                                             .bits = options.bits,
                                             .rest = asked.rest,
                                             .sketch = asked.sketch,
                                             .locate = style.locate,
                                             .file = style.held == nullptr ? file : std::string(),
                                             .late = coming.late,
                                             .device = access->device()});
  if (coming.ticket < 0) {
    access->FetchNow();
    return {};
  }
  if (coming.late != nullptr) coming.late->numbers.ticket = coming.ticket;
  return coming;
}

// Adds a tensor of a device to style.held, and to what is decided by.
void Hold(const TensorAccess& access, PyObject* value, const Coming& coming, EntryStyle style,
          const std::string& file, LateNonfinite* nonfinite) {
  if (coming.late == nullptr) return;
  if (nonfinite != nullptr) nonfinite->late.push_back(coming.late);
  if (file.empty()) return;
  int64_t bytes = static_cast<int64_t>(DTypeSize(access.element_type()));
  for (const int64_t extent : access.shape()) bytes *= extent;
  style.held->push_back({.value = PyRef::Borrow(value),
                         .file = file,
                         .bytes = bytes,
                         .late = coming.late,
                         .version = TorchApi::Get().VersionOf(access.holder()),
                         .elements = coming.elements});
}

// Stores the elements now, or adds the tensor to style.held. False: it could not be stored.
bool Keep(PyObject* value, const TensorView& view, const kernels::Stats& stats,
          const ValueOptions& options, EntryStyle style, const std::string& file_name) {
  if (style.held == nullptr) return options.store(file_name, view);
  style.held->push_back({.value = PyRef::Borrow(value),
                         .file = file_name,
                         .fingerprint = stats.fingerprint,
                         .bytes = Bytes(view)});
  return true;
}

}  // namespace

KnownNumbers::Asked AskedBy(const ValueOptions& options) {
  const bool statistics = options.numbers && options.summary.statistics && !options.for_pkl;
  return {.checksum = options.numbers ? options.summary.checksum : kernels::Checksum::kNone,
          .rest = statistics,
          .sketch = statistics && options.sketch};
}

void MeasureCopy(const TensorView& view, const DeviceReader::Request& asked,
                 KnownContents* contents, DeferredNumbers* numbers) {
  KnownNumbers::Numbers found = ReadNumbers(
      view, {.checksum = asked.checksum, .rest = asked.rest, .sketch = asked.sketch}, contents);
  numbers->stats = found.stats;
  numbers->rest = found.rest;
  numbers->sketch = found.sketch;
  if (asked.locate && found.stats.nan + found.stats.pos_inf + found.stats.neg_inf > 0)
    numbers->first_nonfinite = kernels::FirstNonfinite(view);
}

KnownNumbers::Numbers MeasureWithoutGil(const TensorView& view, KnownNumbers::Asked asked) {
  return Measure(view, asked, Bytes(view) >= kParallelBytes ? &ThreadPool::Default() : nullptr);
}

kernels::Stats MeasureTensor(const TensorView& view, kernels::Checksum checksum) {
  return ComputeOver(view,
                     [&](ThreadPool* pool) { return kernels::ComputeStats(view, pool, checksum); });
}

namespace {

// What RecordTensor does once the tensor can be accessed.
template <typename Access>
void RecordAccess(const Access& access, const Coming& coming, PyObject* tensor,
                  const ValueOptions& options, EntryStyle style, const std::string& file_name,
                  LateNonfinite* nonfinite, TensorValue* value) {
  Describe(access, options, style, coming.ticket, value);
  if (nonfinite != nullptr && value->numbers == TensorValue::Numbers::kHere)
    nonfinite->here.Add(value->stats);
  if (coming.ticket >= 0) value->file = file_name;
  if constexpr (requires { access.holder(); })
    Hold(access, tensor, coming, style, file_name, nonfinite);
  if (!file_name.empty() && access.readable() && coming.ticket < 0)
    value->file =
        Keep(tensor, access.view(), value->stats, options, style, file_name) ? file_name : "-1";
}

}  // namespace

TensorValue RecordTensor(PyObject* tensor, const ValueOptions& options, EntryStyle style,
                         const std::string& file_name, LateNonfinite* nonfinite) {
  TensorValue value;  // every way returns it: it is made in its place
  if (!Framework::Get().is_torch()) {
    FrameworkTensor access(tensor);
    if (options.slicer != nullptr) access.Slice(*options.slicer);
    RecordAccess(access, {}, tensor, options, style, file_name, nonfinite, &value);
    return value;
  }
  style.store = !file_name.empty();
  TensorAccess access(tensor, FetchFor(options, style));
  const Coming coming = ComingOf(&access, options, style, file_name);
  if (options.slicer != nullptr) access.Slice(*options.slicer);
  RecordAccess(access, coming, tensor, options, style, file_name, nonfinite, &value);
  value.requires_grad = TorchApi::Get().RequiresGrad(tensor);
  return value;
}

TensorValue RecordTensor(FrameworkTensor* tensor, const ValueOptions& options, EntryStyle style,
                         const std::string& file_name) {
  if (options.slicer != nullptr) tensor->Slice(*options.slicer);
  TensorValue value;
  RecordAccess(*tensor, {}, nullptr, options, style, file_name, nullptr, &value);
  return value;
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* const* values,
                       Py_ssize_t count) {
  List(key, category, nullptr, values, count);
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* self,
                       PyObject* const* values, Py_ssize_t count) {
  const DeviceReader::Together together(options_.device);
  entry_.BeginSlot(key, category, Entry::Container::kList);
  Py_ssize_t first = 0;
  if (self != nullptr) ValueAt(first++, self);
  for (Py_ssize_t i = 0; i < count; ++i) ValueAt(first + i, values[i]);
  entry_.EndSlot();
}

void ValueWriter::Dict(std::string_view key, std::string_view category, PyObject* dict,
                       bool leave_out_none) {
  const DeviceReader::Together together(options_.device);
  entry_.BeginSlot(key, category, Entry::Container::kDict);
  PyObject *name, *value;
  for (Py_ssize_t position = 0; dict != nullptr && PyDict_Next(dict, &position, &name, &value);) {
    if (leave_out_none && value == Py_None) continue;
    const PyRef keep_name = PyRef::Borrow(name),
                keep_value = PyRef::Borrow(value);  // the GIL may be released below
    entry_.Key(Utf8(name));
    if (ignored_ != nullptr && ignored_->Has(Utf8(name)))
      Ignored(value);
    else
      Value(value, 1);
  }
  entry_.EndSlot();
}

void ValueWriter::Names(std::string_view key, std::string_view category, PyObject* names,
                        PyObject* const* values) {
  const DeviceReader::Together together(options_.device);
  entry_.BeginSlot(key, category, Entry::Container::kDict);
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const std::string_view name = Utf8(PyTuple_GET_ITEM(names, i));
    entry_.Key(name);
    if (ignored_ != nullptr && ignored_->Has(name))
      Ignored(values[i]);
    else
      Value(values[i], 1);
  }
  entry_.EndSlot();
}

void ValueWriter::Members(std::string_view key,
                          const std::vector<std::pair<std::string, PyObject*>>& members) {
  const DeviceReader::Together together(options_.device);
  entry_.BeginSlot(key, key, Entry::Container::kDict);
  for (const auto& [name, value] : members) {
    const PyRef keep = PyRef::Borrow(value);  // the GIL may be released below
    entry_.Key(name);
    Value(value, 1);
  }
  entry_.EndSlot();
}

void ValueWriter::Output(std::string_view key, std::string_view category, PyObject* result) {
  const DeviceReader::Together together(options_.device);
  if (options_.for_pkl && !PyTuple_Check(result) && !PyList_Check(result)) {
    entry_.BeginSlot(key, category, Entry::Container::kNone);
    ValueAt(0, result);
    entry_.EndSlot();
    return;
  }
  entry_.BeginSlot(key, category, Entry::Container::kList);
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
  entry_.EndSlot();
}

void ValueWriter::ValueAt(int64_t position, PyObject* value) {
  if (ignored_ != nullptr && ignored_->Has(position)) return Ignored(value);
  if (unwritten_ != nullptr && std::ranges::find(*unwritten_, position) != unwritten_->end())
    return Unwritten(value);
  Value(value);
}

void ValueWriter::Ignored(PyObject* value) {
  entry_.Null();
  // Its gradients are recorded, so its tensors must be listed.
  Entry nowhere;
  nowhere.BeginSlot("", "", Entry::Container::kList);
  ValueWriter walk(&nowhere, options_, EntryStyle{Reading::kPresence});
  walk.Value(value);
  tensors_.insert(tensors_.end(), walk.tensors_.begin(), walk.tensors_.end());
  tracing_ = tracing_ || walk.tracing_;
}

void ValueWriter::Unwritten(PyObject* tensor) {
  if (style_.reading != Reading::kMeasured || !Framework::Get().IsTensor(tensor))
    return Value(tensor);
  tensors_.push_back(tensor);
  TensorValue& described = entry_.AddTensor();
  if (style_.kept != nullptr) style_.kept->push_back(PyRef::Borrow(tensor));
  const EntryStyle style{.reading = Reading::kDescribed};
  Framework::Get().is_torch()
      ? Describe(TensorAccess(tensor, Fetch::kNever), options_, style, -1, &described)
      : Describe(FrameworkTensor(tensor), options_, style, -1, &described);
  described.unwritten = unwritten_by_;
}

void ValueWriter::WriteTensor(PyObject* tensor) {
  const TorchApi& torch = TorchApi::Get();
  if (torch.IsTracing(tensor) || (IsDTensor(tensor) && torch.IsTracing(LocalShard(tensor).get()))) {
    tracing_ = true;
    entry_.Null();
    return;
  }
  if (tensors_.capacity() == 0) tensors_.reserve(8);
  tensors_.push_back(tensor);
  if (style_.reading == Reading::kPresence) {
    entry_.Null();
    return;
  }
  if (!Framework::Get().is_torch()) {
    FrameworkTensor access(tensor);
    if (options_.slicer != nullptr) access.Slice(*options_.slicer);
    return Measure(access, tensor, /*requires_grad=*/std::nullopt, {});
  }
  TensorAccess access(tensor, FetchFor(options_, style_));
  const bool in_flight = options_.in_flight != nullptr && !options_.in_flight->empty();
  const bool later = style_.store && (access.on_device() || in_flight);
  const Coming coming =
      ComingOf(&access, options_, style_,
               later ? entry_.TensorFileName(Framework::Get().tensor_suffix) : std::string());
  if (options_.slicer != nullptr) access.Slice(*options_.slicer);
  Measure(access, tensor, torch.RequiresGrad(tensor), coming);
}

template <typename Access>
void ValueWriter::Measure(const Access& access, PyObject* value, std::optional<bool> requires_grad,
                          const Coming& coming) {
  std::string file;
  if (style_.store && (access.readable() || coming.ticket >= 0))
    file = entry_.TensorFileName(Framework::Get().tensor_suffix);
  TensorValue& tensor = entry_.AddTensor();
  if (style_.kept != nullptr) style_.kept->push_back(PyRef::Borrow(value));
  Describe(access, options_, style_, coming.ticket, &tensor);
  if (tensor.numbers == TensorValue::Numbers::kHere) nonfinite_.here.Add(tensor.stats);
  if constexpr (requires { access.holder(); })
    Hold(access, value, coming, style_, file, &nonfinite_);
  tensor.requires_grad = requires_grad;
  if constexpr (requires { access.resolved(); }) {
    const bool asks = options_.unwritten != nullptr && !options_.unwritten->empty();
    if (asks && access.readable() && access.resolved() == nullptr)
      tensor.unwritten = options_.unwritten->AllocationOf(access.view());
  }
  if (file.empty()) return;
  if (coming.ticket >= 0) {
    tensor.file = file;
    return;
  }
  tensor.file = Keep(value, access.view(), tensor.stats, options_, style_, file) ? file : "-1";
}

void ValueWriter::ArrayValue(PyObject* array) {
  style_.reading != Reading::kPresence
      ? Measure(NumpyArray(array), array, /*requires_grad=*/std::nullopt, {})
      : entry_.Null();
}

}  // namespace msprobe::capture
