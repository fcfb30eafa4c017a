#include "capture/value_writer.h"

#include "capture/py_ref.h"
#include "capture/tensor_access.h"
#include "capture/torch_api.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/kernels/digest.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxDepth = 400;
// Below this many bytes, giving up the GIL costs more than it gives to others.
constexpr int64_t kReleaseGilBytes = 1 << 20;
constexpr int64_t kParallelBytes = 1 << 19;

// The class name without its module: "int", "float64".
std::string_view ShortTypeName(PyObject* value) {
  std::string_view name = Py_TYPE(value)->tp_name;
  if (const size_t dot = name.rfind('.'); dot != std::string_view::npos)
    name.remove_prefix(dot + 1);
  return name;
}

bool IsNumpyScalar(PyObject* value) {
  return std::string_view(Py_TYPE(value)->tp_name).starts_with("numpy.") &&
         PyObject_HasAttrString(value, "item");
}

void AppendIntOrNull(std::string* out, PyObject* value) {
  if (PyIndex_Check(value)) {
    if (PyRef number = PyRef::Steal(PyNumber_Index(value))) {
      *out += StrOf(number.get());
      return;
    }
    PyErr_Clear();
  }
  *out += "null";
}

// Everything of a tensor but the place it goes to.
struct Measured {
  TensorAccess access;
  Stats stats;
  uint32_t crc32 = 0;
  TensorFields fields;

  Measured(PyObject* tensor, const ValueOptions& options) : access(tensor) {
    fields.type = access.type();
    fields.dtype = access.dtype();
    fields.shape = access.shape();
    fields.requires_grad = TorchApi::Get().RequiresGrad(tensor);
    if (!access.readable()) return;
    const TensorView& view = access.view();
    stats = MeasureTensor(view);
    fields.stats = &stats;
    fields.kind = DTypeKindOf(view.dtype);
    fields.is_unsigned64 = view.dtype == DType::kUInt64;
    if (options.crc32) {
      crc32 = Crc32(view);
      fields.crc32 = &crc32;
    }
  }
  Measured(const Measured&) = delete;
};

}  // namespace

Stats MeasureTensor(const TensorView& view) {
  const int64_t bytes = view.numel() * static_cast<int64_t>(DTypeSize(view.dtype));
  ThreadPool* pool = bytes >= kParallelBytes ? &ThreadPool::Default() : nullptr;
  if (bytes < kReleaseGilBytes) return ComputeStats(view, pool);
  Stats stats;
  Py_BEGIN_ALLOW_THREADS stats = ComputeStats(view, pool);
  Py_END_ALLOW_THREADS return stats;
}

void AppendTensorJson(std::string* out, PyObject* tensor, const ValueOptions& options,
                      const std::string& file_name) {
  Measured measured(tensor, options);
  if (!file_name.empty() && measured.access.readable()) {
    const bool stored = options.store(file_name, measured.access.view());
    measured.fields.data_name = stored ? std::string_view(file_name) : "-1";
  }
  AppendTensor(out, measured.fields);
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* const* values,
                       Py_ssize_t count) {
  List(key, category, nullptr, values, count);
}

void ValueWriter::List(std::string_view key, std::string_view category, PyObject* self,
                       PyObject* const* values, Py_ssize_t count) {
  b_.BeginSlot(key, category, '[');
  if (self != nullptr) Value(self);
  for (Py_ssize_t i = 0; i < count; ++i) Value(values[i]);
  b_.EndSlot(']');
}

void ValueWriter::Dict(std::string_view key, std::string_view category, PyObject* dict) {
  b_.BeginSlot(key, category, '{');
  PyObject *name, *value;
  for (Py_ssize_t position = 0; dict != nullptr && PyDict_Next(dict, &position, &name, &value);) {
    const PyRef keep_name = PyRef::Borrow(name),
                keep_value = PyRef::Borrow(value);  // the GIL may be given up below
    b_.Key(Utf8(name));
    Value(value, 1);
  }
  b_.EndSlot('}');
}

void ValueWriter::Names(std::string_view key, std::string_view category, PyObject* names,
                        PyObject* const* values) {
  b_.BeginSlot(key, category, '{');
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    b_.Key(Utf8(PyTuple_GET_ITEM(names, i)));
    Value(values[i], 1);
  }
  b_.EndSlot('}');
}

void ValueWriter::Output(std::string_view key, std::string_view category, PyObject* result) {
  b_.BeginSlot(key, category, '[');
  if (PyTuple_CheckExact(result) || PyList_CheckExact(result)) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < count && i < PySequence_Fast_GET_SIZE(result); ++i) {
      const PyRef item = PyRef::Borrow(PySequence_Fast_GET_ITEM(result, i));
      Value(item.get());
    }
  } else if (PyTuple_Check(result) && !PyObject_HasAttrString(result, "_fields")) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); ++i)
      Value(PyTuple_GET_ITEM(result, i));  // torch.return_types.*
  } else {
    Value(result);
  }
  b_.EndSlot(']');
}

void ValueWriter::TensorValue(PyObject* tensor) {
  if (TorchApi::Get().IsTracing(tensor)) {
    tracing_ = true;
    b_.Null();
    return;
  }
  tensors_.push_back(tensor);
  if (!measure_) {
    b_.Null();
    return;
  }
  Measured measured(tensor, options_);
  std::string file_name;
  if (store_ && measured.access.readable()) {
    file_name = b_.TensorFileName();
    if (!options_.store(file_name, measured.access.view())) file_name = "-1";
    measured.fields.data_name = file_name;
  }
  b_.Tensor(measured.fields);
}

void ValueWriter::Value(PyObject* value, int depth) {
  // The common types first; type checks by pointer cost nothing.
  if (value == nullptr || value == Py_None || depth > kMaxDepth) {
    b_.Null();
  } else if (TorchApi::Get().IsTensor(value)) {
    TensorValue(value);
  } else if (PyBool_Check(value)) {
    b_.Bool(value == Py_True);
  } else if (PyLong_CheckExact(value)) {
    IntValue(value);
  } else if (PyFloat_CheckExact(value)) {
    b_.Float("float", PyFloat_AS_DOUBLE(value));
  } else if (PyUnicode_CheckExact(value)) {
    b_.String("str", Utf8(value));
  } else {
    OtherValue(value, depth);
  }
}

void ValueWriter::IntValue(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) {
    b_.Raw("int", StrOf(value));
  } else {
    b_.Int("int", number);
  }
}

void ValueWriter::SliceValue(PyObject* value) {
  const auto* slice = reinterpret_cast<PySliceObject*>(value);
  std::string json = "[";
  for (PyObject* part : {slice->start, slice->stop, slice->step}) {
    if (json.size() > 1) json += ", ";
    AppendIntOrNull(&json, part);
  }
  b_.Raw("slice", json + "]");
}

void ValueWriter::DictValue(PyObject* dict, int depth) {
  b_.BeginObject();
  PyObject *name, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &name, &value);) {
    const PyRef keep_name = PyRef::Borrow(name), keep_value = PyRef::Borrow(value);
    if (PyUnicode_Check(name)) {
      b_.Key(Utf8(name));
    } else {
      b_.Key(StrOf(name));
    }
    Value(value, depth + 1);
  }
  b_.EndObject();
}

void ValueWriter::SequenceValue(PyObject* sequence, int depth) {
  b_.BeginList();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    const PyRef item = PyRef::Borrow(PySequence_Fast_GET_ITEM(sequence, i));
    Value(item.get(), depth + 1);
  }
  b_.EndList();
}

bool ValueWriter::FieldsValue(PyObject* value, int depth) {
  PyRef fields = PyRef::Steal(
      PyObject_GetAttrString(value, PyTuple_Check(value) ? "_fields" : "__dataclass_fields__"));
  PyRef names = fields ? PyRef::Steal(PySequence_Tuple(fields.get())) : PyRef();
  PyErr_Clear();
  if (!names || PyType_Check(value)) return false;
  b_.BeginObject();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    PyRef field = PyRef::Steal(PyObject_GetAttr(value, name));
    PyErr_Clear();
    if (!PyUnicode_Check(name)) continue;
    b_.Key(Utf8(name));
    Value(field.get(), depth + 1);
  }
  b_.EndObject();
  return true;
}

void ValueWriter::OtherValue(PyObject* value, int depth) {
  const TorchApi& torch = TorchApi::Get();
  PyTypeObject* type = Py_TYPE(value);
  if (type == torch.size) {
    std::string json = "[";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      if (i) json += ", ";
      AppendIntOrNull(&json, PyTuple_GET_ITEM(value, i));
    }
    b_.Raw("torch.Size", json + "]");
  } else if (type == torch.dtype) {
    b_.String("torch.dtype", StrOf(value));
  } else if (type == torch.device) {
    b_.String("torch.device", StrOf(value));
  } else if (type == torch.memory_format) {
    std::string text = StrOf(value);
    if (text.starts_with("torch.")) text.erase(0, 6);
    b_.Member("torch.memory_format", "format", text);
  } else if (PySlice_Check(value)) {
    SliceValue(value);
  } else if (value == Py_Ellipsis) {
    b_.String("ellipsis", "...");
  } else if ((PyTuple_Check(value) && !PyTuple_CheckExact(value)) ||
             PyObject_HasAttrString(value, "__dataclass_fields__")) {
    if (!FieldsValue(value, depth)) PyTuple_Check(value) ? SequenceValue(value, depth) : b_.Null();
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    SequenceValue(value, depth);
  } else if (PyDict_Check(value)) {
    DictValue(value, depth);
  } else if (PyFloat_Check(value)) {
    b_.Float(ShortTypeName(value), PyFloat_AS_DOUBLE(value));
  } else if (PyLong_Check(value)) {
    b_.Raw(ShortTypeName(value), StrOf(PyRef::Steal(PyNumber_Index(value)).get()));
  } else if (PyUnicode_Check(value)) {
    b_.String(ShortTypeName(value), Utf8(value));
  } else if (PyComplex_Check(value)) {
    b_.String("complex", StrOf(value));
  } else if (IsNumpyScalar(value)) {
    PyRef number = PyRef::Steal(PyObject_CallMethod(value, "item", nullptr));
    PyErr_Clear();
    if (number && PyBool_Check(number.get())) {
      b_.Raw(ShortTypeName(value), number.get() == Py_True ? "true" : "false");
    } else if (number && PyLong_Check(number.get())) {
      b_.Raw(ShortTypeName(value), StrOf(number.get()));
    } else if (number && PyFloat_Check(number.get())) {
      b_.Float(ShortTypeName(value), PyFloat_AS_DOUBLE(number.get()));
    } else {
      b_.Null();
    }
  } else {
    b_.Null();
  }
}

}  // namespace msprobe::capture
