// What is no tensor: numbers, text, containers, what torch.distributed is given.
#include "capture/python/process_group.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"
#include "capture/values/numpy_array.h"
#include "capture/values/value_writer.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxDepth = 400;

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
    ClearError();
  }
  *out += "null";
}

}  // namespace

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
    FloatValue("float", PyFloat_AS_DOUBLE(value));
  } else if (PyUnicode_CheckExact(value)) {
    b_.String("str", Utf8(value));
  } else {
    OtherValue(value, depth);
  }
}

void ValueWriter::FloatValue(std::string_view type, double value) {
  nonfinite_.Add(value);
  b_.Float(type, value);
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
  ClearError();
  if (!names || PyType_Check(value)) return false;
  b_.BeginObject();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    PyRef field = PyRef::Steal(PyObject_GetAttr(value, name));
    ClearError();
    if (!PyUnicode_Check(name)) continue;
    b_.Key(Utf8(name));
    Value(field.get(), depth + 1);
  }
  b_.EndObject();
  return true;
}

void ValueWriter::GroupValue(PyObject* group) {
  const GroupNames names = NamesOfGroup(group);
  if (names.ranks.empty()) return b_.Null();
  b_.Piece(R"({"type": "torch.ProcessGroup", "group_ranks": )" + names.ranks +
           R"(, "group_id": ")" + names.id + "\"}");
}

void ValueWriter::PointToPointValue(PyObject* value, int depth) {
  const auto attribute = [&](const char* name) {
    PyRef found = PyRef::Steal(PyObject_GetAttrString(value, name));
    ClearError();
    return found;
  };
  const auto text = [&](std::string_view key, const std::string& content) {
    std::string json;
    AppendJsonString(&json, content);
    b_.Key(key);
    b_.Piece(json);
  };
  b_.BeginObject();
  text("class_type", "torch.distributed.P2POp");
  b_.Key("tensor");
  const PyRef tensor = attribute("tensor");
  Value(tensor.get(), depth + 1);
  const PyRef function = attribute("op");
  const PyRef name =
      function ? PyRef::Steal(PyObject_GetAttrString(function.get(), "__name__")) : PyRef();
  ClearError();
  text("op", name ? StrOf(name.get()) : "unknown");
  for (const char* key : {"peer", "tag"}) {
    const PyRef number = attribute(key);
    std::string json;
    AppendIntOrNull(&json, number ? number.get() : Py_None);
    b_.Key(key);
    b_.Piece(json);
  }
  text("group_id", NamesOfGroup(attribute("group").get()).id);
  b_.EndObject();
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
    FloatValue(ShortTypeName(value), PyFloat_AS_DOUBLE(value));
  } else if (PyLong_Check(value)) {
    b_.Raw(ShortTypeName(value), StrOf(PyRef::Steal(PyNumber_Index(value)).get()));
  } else if (PyUnicode_Check(value)) {
    b_.String(ShortTypeName(value), Utf8(value));
  } else if (PyComplex_Check(value)) {
    b_.String("complex", StrOf(value));
  } else if (NumpyArray::IsArray(value)) {
    ArrayValue(value);
  } else if (IsReduceOp(value)) {
    b_.String("torch.distributed.ReduceOp", NameOfReduceOp(value));
  } else if (IsProcessGroup(value)) {
    GroupValue(value);
  } else if (IsPointToPoint(value)) {
    PointToPointValue(value, depth);
  } else if (IsNumpyScalar(value)) {
    PyRef number = PyRef::Steal(PyObject_CallMethod(value, "item", nullptr));
    ClearError();
    if (number && PyBool_Check(number.get())) {
      b_.Raw(ShortTypeName(value), number.get() == Py_True ? "true" : "false");
    } else if (number && PyLong_Check(number.get())) {
      b_.Raw(ShortTypeName(value), StrOf(number.get()));
    } else if (number && PyFloat_Check(number.get())) {
      FloatValue(ShortTypeName(value), PyFloat_AS_DOUBLE(number.get()));
    } else {
      b_.Null();
    }
  } else {
    b_.Null();
  }
}

}  // namespace msprobe::capture
