// Writes what a call was given or returned (tensors, numbers, containers of them) into the entry
// that is being composed.
//
//   ValueWriter writer(&entry, options, {.store = true});
//   writer.List("input_args", "input", values, n);
//   writer.tensors();                            // the tensors met, in order: for gradients
#pragma once

#include <Python.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/py_ref.h"
#include "engine/dump/config/slice_rules.h"
#include "engine/dump/config/summary_mode.h"
#include "engine/formats/ignore_rules.h"
#include "engine/model/entry.h"
#include "engine/model/nonfinite.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}

namespace msprobe::capture {

class DeviceStats;

// How much of a tensor is looked at.
enum class Reading : uint8_t {
  kMet,        // that it is there: for its gradient
  kDescribed,  // type, dtype and shape
  kMeasured,   // the elements
};

// A tensor or array whose file is written later, or never (task overflow_check).
struct Held {
  PyRef value;
  std::string file;
  uint64_t fingerprint;  // of what was recorded: tells whether it was changed since
  int64_t bytes;
};

// How the values of one entry are written.
struct EntryStyle {
  Reading reading = Reading::kMeasured;
  bool store = false;                 // tensors go to files too
  bool locate = false;                // counts and the first place of what is not finite
  std::vector<Held>* held = nullptr;  // tensors that would be stored are kept here instead
};

struct ValueOptions {
  dump::SummaryMode summary;
  // For lines of an older tool: what they have no place for is left out, and a result that is no
  // sequence stands without a list around it.
  bool for_pkl = false;
  bool numbers = true;  // false: nothing that is measured is written (task nan_check)
  // Measures what lies on a device without waiting for it; null: it is fetched and measured here.
  DeviceStats* device = nullptr;
  const dump::Slicer* slicer =
      nullptr;  // the part of each tensor that is recorded; null: all of it
  // Called for each readable tensor of an entry whose tensors are stored; returns false when it
  // could not be queued.
  std::function<bool(const std::string& file_name, const TensorView& view)> store;
};

class ValueWriter {
 public:
  ValueWriter(Entry* entry, const ValueOptions& options, EntryStyle style)
      : entry_(*entry), options_(options), style_(style) {}

  // "input_args": [...]
  void List(std::string_view key, std::string_view category, PyObject* const* values,
            Py_ssize_t count);
  // The same for a call whose first positional value is kept apart (bound methods).
  void List(std::string_view key, std::string_view category, PyObject* self,
            PyObject* const* values, Py_ssize_t count);
  // "input_kwargs": {...}: from a dict (may be null), or from names and values of a vectorcall.
  // A module's parameters that are None are left out.
  void Dict(std::string_view key, std::string_view category, PyObject* dict,
            bool leave_out_none = false);
  void Names(std::string_view key, std::string_view category, PyObject* names,
             PyObject* const* values);
  // "output": [...]: the elements of a tuple or list, else one element.
  void Output(std::string_view key, std::string_view category, PyObject* result);
  void Value(PyObject* value, int depth = 0);
  // What the next calls of List, Dict, Names and Output leave out; nullptr: nothing. null stands in
  // its place, its tensors count as met.
  void Ignore(const formats::IgnoredValues* ignored) { ignored_ = ignored; }
  void ValueAt(int64_t position, PyObject* value);  // of a list

  const std::vector<PyObject*>& tensors() const { return tensors_; }  // borrowed
  const Nonfinite& nonfinite() const { return nonfinite_; }  // of what was measured, and of numbers
  bool tracing() const {
    return tracing_;
  }  // a compiler is tracing: what was written means nothing

 private:
  void Ignored(PyObject* value);
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
               int64_t ticket);

  Entry& entry_;
  const ValueOptions& options_;
  EntryStyle style_;
  Nonfinite nonfinite_;
  bool tracing_ = false;
  const formats::IgnoredValues* ignored_ = nullptr;
  std::vector<PyObject*> tensors_;
};

// Statistics and a checksum of a view; a large one is read without the GIL and by all cores.
kernels::Stats MeasureTensor(const TensorView& view,
                             kernels::Checksum checksum = kernels::Checksum::kNone);

// What an entry says of one tensor (a gradient), in the same way; stored when `file_name` is not "".
// Adds what it holds to `nonfinite`.
TensorValue RecordTensor(PyObject* tensor, const ValueOptions& options, EntryStyle style,
                         const std::string& file_name, Nonfinite* nonfinite = nullptr);

}  // namespace msprobe::capture
