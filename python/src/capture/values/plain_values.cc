// Values that are not tensors: numbers, text, containers, arguments of torch.distributed.
#include <optional>
#include <vector>

#include "capture/python/framework.h"
#include "capture/python/process_group.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"
#include "capture/values/numpy_array.h"
#include "capture/values/value_writer.h"

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

// nullopt for None, for an object that is not an integer, and for integers beyond 64 bits.
std::optional<int64_t> IntOf(PyObject* value) {
  if (!PyIndex_Check(value)) return std::nullopt;
  const PyRef number = PyRef::Steal(PyNumber_Index(value));
  int overflow = 0;
  const long long found =
      number ? PyLong_AsLongLongAndOverflow(number.get(), &overflow) : (overflow = 1, 0);
  ClearError();
  if (overflow != 0) return std::nullopt;
  return found;
}

}  // namespace

void ValueWriter::Value(PyObject* value, int depth) {
  // The common types first; type checks by pointer cost nothing.
  if (value == nullptr || value == Py_None || depth > kMaxDepth) {
    entry_.Null();
  } else if (Framework::Get().IsTensor(value)) {
    WriteTensor(value);
  } else if (PyBool_Check(value)) {
    entry_.Bool("bool", value == Py_True);
  } else if (PyLong_CheckExact(value)) {
    IntValue(value);
  } else if (PyFloat_CheckExact(value)) {
    FloatValue("float", PyFloat_AS_DOUBLE(value));
  } else if (PyUnicode_CheckExact(value)) {
    entry_.String("str", Utf8(value));
  } else {
    OtherValue(value, depth);
  }
}

void ValueWriter::FloatValue(std::string_view type, double value) {
  nonfinite_.here.Add(value);
  entry_.Float(type, value);
}

void ValueWriter::IntValue(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) {
    entry_.Digits("int", StrOf(value));
  } else {
    entry_.Int("int", number);
  }
}

// A slice with a number beyond 64 bits.
void ValueWriter::LongSlice(const PySliceObject* slice) {
  std::string json = "[";
  for (PyObject* part : {slice->start, slice->stop, slice->step}) {
    if (json.size() > 1) json += ", ";
    json += PyLong_Check(part) ? StrOf(part) : "null";
  }
  entry_.Digits("slice", json + "]");
}

void ValueWriter::SliceValue(PyObject* value) {
  const auto* slice = reinterpret_cast<PySliceObject*>(value);
  for (PyObject* part : {slice->start, slice->stop, slice->step}) {
    if (PyLong_Check(part) && !IntOf(part)) return LongSlice(slice);
  }
  const std::optional<int64_t> parts[] = {IntOf(slice->start), IntOf(slice->stop),
                                          IntOf(slice->step)};
  entry_.Ints("slice", parts);
}

void ValueWriter::DictValue(PyObject* dict, int depth) {
  entry_.BeginDict();
  PyObject *name, *value;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &name, &value);) {
    const PyRef keep_name = PyRef::Borrow(name), keep_value = PyRef::Borrow(value);
    if (PyUnicode_Check(name)) {
      entry_.Key(Utf8(name));
    } else {
      entry_.Key(StrOf(name));
    }
    Value(value, depth + 1);
  }
  entry_.EndContainer();
}

void ValueWriter::SequenceValue(PyObject* sequence, int depth) {
  entry_.BeginList();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    const PyRef item = PyRef::Borrow(PySequence_Fast_GET_ITEM(sequence, i));
    Value(item.get(), depth + 1);
  }
  entry_.EndContainer();
}

bool ValueWriter::FieldsValue(PyObject* value, int depth) {
  PyRef fields = PyRef::Steal(
      PyObject_GetAttrString(value, PyTuple_Check(value) ? "_fields" : "__dataclass_fields__"));
  PyRef names = fields ? PyRef::Steal(PySequence_Tuple(fields.get())) : PyRef();
  ClearError();
  if (!names || PyType_Check(value)) return false;
  entry_.BeginDict();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names.get(), i);
    PyRef field = PyRef::Steal(PyObject_GetAttr(value, name));
    ClearError();
    if (!PyUnicode_Check(name)) continue;
    entry_.Key(Utf8(name));
    Value(field.get(), depth + 1);
  }
  entry_.EndContainer();
  return true;
}

void ValueWriter::GroupValue(PyObject* group) {
  const GroupNames names = NamesOfGroup(group);
  if (names.members.empty()) return entry_.Null();
  entry_.Group(names.members, names.id);
}

void ValueWriter::PointToPointValue(PyObject* value, int depth) {
  const auto attribute = [&](const char* name) {
    PyRef found = PyRef::Steal(PyObject_GetAttrString(value, name));
    ClearError();
    return found;
  };
  const auto text = [&](std::string_view key, const std::string& content) {
    entry_.Key(key);
    entry_.BareText(content);
  };
  entry_.BeginDict();
  text("class_type", "torch.distributed.P2POp");
  entry_.Key("tensor");
  const PyRef tensor = attribute("tensor");
  Value(tensor.get(), depth + 1);
  const PyRef function = attribute("op");
  const PyRef name =
      function ? PyRef::Steal(PyObject_GetAttrString(function.get(), "__name__")) : PyRef();
  ClearError();
  text("op", name ? StrOf(name.get()) : "unknown");
  for (const char* key : {"peer", "tag"}) {
    const PyRef number = attribute(key);
    entry_.Key(key);
    entry_.BareInt(number ? IntOf(number.get()) : std::nullopt);
  }
  text("group_id", NamesOfGroup(attribute("group").get()).id);
  entry_.EndContainer();
}

void ValueWriter::OtherValue(PyObject* value, int depth) {
  const TorchApi& torch = TorchApi::Get();
  PyTypeObject* type = Py_TYPE(value);
  if (type == torch.size) {
    std::vector<std::optional<int64_t>> extents;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
      extents.push_back(IntOf(PyTuple_GET_ITEM(value, i)));
    entry_.Ints("torch.Size", extents);
  } else if (const auto known = Framework::Get().Describe(value)) {
    entry_.String(known->first, known->second);
  } else if (type == torch.memory_format) {
    std::string text = StrOf(value);
    if (text.starts_with("torch.")) text.erase(0, 6);
    entry_.Member("torch.memory_format", "format", text);
  } else if (PySlice_Check(value)) {
    SliceValue(value);
  } else if (value == Py_Ellipsis) {
    entry_.String("ellipsis", "...");
  } else if ((PyTuple_Check(value) && !PyTuple_CheckExact(value)) ||
             PyObject_HasAttrString(value, "__dataclass_fields__")) {
    if (!FieldsValue(value, depth))
      PyTuple_Check(value) ? SequenceValue(value, depth) : entry_.Null();
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    SequenceValue(value, depth);
  } else if (PyDict_Check(value)) {
    DictValue(value, depth);
  } else if (PyFloat_Check(value)) {
    FloatValue(ShortTypeName(value), PyFloat_AS_DOUBLE(value));
  } else if (PyLong_Check(value)) {
    entry_.Digits(ShortTypeName(value), StrOf(PyRef::Steal(PyNumber_Index(value)).get()));
  } else if (PyUnicode_Check(value)) {
    entry_.String(ShortTypeName(value), Utf8(value));
  } else if (PyComplex_Check(value)) {
    entry_.String("complex", StrOf(value));
  } else if (NumpyArray::IsArray(value)) {
    ArrayValue(value);
  } else if (IsReduceOp(value)) {
    entry_.String("torch.distributed.ReduceOp", NameOfReduceOp(value));
  } else if (IsProcessGroup(value)) {
    GroupValue(value);
  } else if (IsPointToPoint(value)) {
    PointToPointValue(value, depth);
  } else if (IsNumpyScalar(value)) {
    PyRef number = PyRef::Steal(PyObject_CallMethod(value, "item", nullptr));
    ClearError();
    if (number && PyBool_Check(number.get())) {
      entry_.Bool(ShortTypeName(value), number.get() == Py_True);
    } else if (number && PyLong_Check(number.get())) {
      entry_.Digits(ShortTypeName(value), StrOf(number.get()));
    } else if (number && PyFloat_Check(number.get())) {
      FloatValue(ShortTypeName(value), PyFloat_AS_DOUBLE(number.get()));
    } else {
      entry_.Null();
    }
  } else {
    entry_.Null();
  }
}

}  // namespace msprobe::capture
