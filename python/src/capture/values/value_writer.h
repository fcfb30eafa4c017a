// Adds the arguments and results of a call (tensors, numbers, containers of them) to its entry.
//
//   ValueWriter writer(&entry, options, {.store = true});
//   writer.List("input_args", "input", values, n);
//   writer.tensors();                            // all tensors among them, in order, for gradients
#pragma once

#include <Python.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/devices/device_reader.h"
#include "capture/devices/late_tensor.h"
#include "capture/python/py_ref.h"
#include "capture/values/known_numbers.h"
#include "engine/dump/config/slice_rules.h"
#include "engine/dump/config/summary_mode.h"
#include "engine/formats/text/ignore_rules.h"
#include "engine/model/entry.h"
#include "engine/model/nonfinite.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}

namespace msprobe::capture {

class FrameworkTensor;
class KnownContents;
class UnwrittenMemory;
class ValuesInFlight;

// How much of a tensor is read.
enum class Reading : uint8_t {
  kPresence,   // nothing: the tensor is only listed in tensors(), for its gradient
  kDescribed,  // type, dtype and shape
  kMeasured,   // the elements
};

// A tensor or array whose file is written later, or never: when it is known whether its call is
// recorded (task overflow_check, "bench_path").
struct HeldTensor {
  PyRef value;  // null: its elements were taken, or it has changed
  std::string file;
  uint64_t fingerprint = 0;  // of the elements as they were recorded; shows whether they change
  int64_t bytes = 0;
  // Of a device: the fingerprint comes with `late`. `version`: PyTorch's, as it was recorded; -1:
  // not known. `again`: the elements when the call ended, where they may be others.
  std::shared_ptr<LateTensor> late = {}, again = {};
  int64_t version = -1;
  std::shared_ptr<HeldElements> elements = {};  // null: they are read of `value`
  bool changed = false;
};

// How the values of one entry are written.
struct EntryStyle {
  Reading reading = Reading::kMeasured;
  bool store = false;   // write the elements of each tensor to a file
  bool locate = false;  // record the counts, and the index of the first NaN or infinity
  // Set: tensors that would be stored are added to this list instead. Those of a device are read
  // without waiting: whoever decides by them gets them as LateNonfinite.
  std::vector<HeldTensor>* held = nullptr;
  // Set: takes a reference to each tensor of the entry, in the entry's order.
  std::vector<PyRef>* kept = nullptr;
};

struct ValueOptions {
  dump::SummaryMode summary;
  // For pkl files: values that they cannot hold are left out, and a single result has no list
  // around it.
  bool for_pkl = false;
  bool numbers = true;  // false: statistics are computed and not written (task nan_check)
  bool sketch = false;  // recorded with the statistics
  // Reads tensors of a device without waiting for it; null: they are copied to the host at once.
  DeviceReader* device = nullptr;
  bool bits = false;  // the fingerprints of tensors of a device are needed, however large they are
  // Tells which tensors show memory that nobody has written; null: not asked.
  UnwrittenMemory* unwritten = nullptr;
  // Tells which tensors a collective still writes; null: not asked.
  ValuesInFlight* in_flight = nullptr;
  // Keeps the numbers of tensors that were read; null: each tensor is read each time.
  KnownNumbers* known = nullptr;
  // Keeps the numbers of small tensors by their bytes; null: they are computed each time.
  KnownContents* contents = nullptr;
  // Selects the part of each tensor that is recorded; null: the whole tensor.
  const dump::Slicer* slicer = nullptr;
  // Called for each readable tensor of an entry whose tensors are stored. Returns false when the
  // tensor could not be queued.
  std::function<bool(const std::string& file_name, const TensorView& view)> store;
};

struct Coming;  // how the numbers of a tensor come

class ValueWriter {
 public:
  ValueWriter(Entry* entry, const ValueOptions& options, EntryStyle style)
      : entry_(*entry), options_(options), style_(style) {}

  // "input_args": [...]
  void List(std::string_view key, std::string_view category, PyObject* const* values,
            Py_ssize_t count);
  // The same for a bound method, whose first value `self` is kept apart.
  void List(std::string_view key, std::string_view category, PyObject* self,
            PyObject* const* values, Py_ssize_t count);
  // "input_kwargs": {...}: from a dict (may be null), or (Names) from the names and values of a
  // vectorcall. `leave_out_none`: a value None has no member.
  void Dict(std::string_view key, std::string_view category, PyObject* dict,
            bool leave_out_none = false);
  void Names(std::string_view key, std::string_view category, PyObject* names,
             PyObject* const* values);
  // "output": [...]: the elements of a tuple or list, else one element.
  void Output(std::string_view key, std::string_view category, PyObject* result);
  // "changed": {...}, with these names.
  void Members(std::string_view key, const std::vector<std::pair<std::string, PyObject*>>& members);
  void Value(PyObject* value, int depth = 0);
  // The values that the next calls of List, Dict, Names and Output leave out; nullptr: none. The
  // entry has null in their place. Their tensors are still listed in tensors().
  void Ignore(const formats::IgnoredValues* ignored) { ignored_ = ignored; }
  // The results at `places` were left as they were by `call`: their elements are not read.
  void LeaveUnwritten(const std::vector<int64_t>* places, std::string_view call) {
    unwritten_ = places;
    unwritten_by_ = call;
  }
  void ValueAt(int64_t position, PyObject* value);  // element `position` of a list

  const std::vector<PyObject*>& tensors() const { return tensors_; }  // borrowed
  // Of measured tensors and of numbers.
  const LateNonfinite& nonfinite() const { return nonfinite_; }
  // A compiler is tracing: the values are placeholders, and the entry is to be dropped.
  bool tracing() const { return tracing_; }

 private:
  void Ignored(PyObject* value);
  void Unwritten(PyObject* tensor);
  void WriteTensor(PyObject* tensor);
  void ArrayValue(PyObject* array);  // of NumPy
  void OtherValue(PyObject* value, int depth);
  void IntValue(PyObject* value);
  void SliceValue(PyObject* value);
  void LongSlice(const PySliceObject* slice);
  void DictValue(PyObject* dict, int depth);
  void SequenceValue(PyObject* sequence, int depth);
  bool FieldsValue(PyObject* value, int depth);  // namedtuple or dataclass
  void GroupValue(PyObject* group);
  void PointToPointValue(PyObject* value, int depth);
  void FloatValue(std::string_view type, double value);
  template <typename Access>
  void Measure(const Access& access, PyObject* value, std::optional<bool> requires_grad,
               const Coming& coming);

  Entry& entry_;
  const ValueOptions& options_;
  EntryStyle style_;
  LateNonfinite nonfinite_;
  bool tracing_ = false;
  const formats::IgnoredValues* ignored_ = nullptr;
  const std::vector<int64_t>* unwritten_ = nullptr;
  std::string_view unwritten_by_;
  std::vector<PyObject*> tensors_;
};

// Statistics and a checksum of a view. A large tensor is read by all cores, with the GIL released.
kernels::Stats MeasureTensor(const TensorView& view,
                             kernels::Checksum checksum = kernels::Checksum::kNone);

// Measures one tensor (a gradient) in the same way. It is stored when `file_name` is not "".
// `nonfinite`, if given, is told which kinds of non-finite elements it has.
TensorValue RecordTensor(PyObject* tensor, const ValueOptions& options, EntryStyle style,
                         const std::string& file_name, LateNonfinite* nonfinite = nullptr);
// The same for a tensor that a compiled graph hands over.
TensorValue RecordTensor(FrameworkTensor* tensor, const ValueOptions& options, EntryStyle style,
                         const std::string& file_name);

// What the options ask for of a tensor, and its numbers: MeasureWithoutGil may run on any thread.
KnownNumbers::Asked AskedBy(const ValueOptions& options);
KnownNumbers::Numbers MeasureWithoutGil(const TensorView& view, KnownNumbers::Asked asked);
// The numbers of a tensor of a device, of which `view` is a copy (DeviceReader::Measure).
// `contents` may be null.
void MeasureCopy(const TensorView& view, const DeviceReader::Request& asked,
                 KnownContents* contents, DeferredNumbers* numbers);

}  // namespace msprobe::capture
