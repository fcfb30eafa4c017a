#include "capture/values/numpy_array.h"

#include <algorithm>
#include <optional>

namespace msprobe::capture {
namespace {

// The dtype for a format of Python's struct module, by which NumPy describes one element.
std::optional<DType> DTypeOfFormat(std::string_view format, Py_ssize_t size) {
  // The native byte order has no mark, or one of these; '>' is the order of another machine.
  if (!format.empty() && std::string_view("@=<|").find(format[0]) != std::string_view::npos)
    format.remove_prefix(1);
  if (format == "?") return DType::kBool;
  if (format == "e") return DType::kFloat16;
  if (format == "f") return DType::kFloat32;
  if (format == "d") return DType::kFloat64;
  if (format == "Zf") return DType::kComplex64;
  if (format == "Zd") return DType::kComplex128;
  if (format.size() != 1) return std::nullopt;
  const bool is_signed = std::string_view("bhilq").find(format[0]) != std::string_view::npos;
  if (!is_signed && std::string_view("BHILQ").find(format[0]) == std::string_view::npos)
    return std::nullopt;
  switch (size) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    case 8:
      return is_signed ? DType::kInt64 : DType::kUInt64;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool NumpyArray::IsArray(PyObject* object) {
  static PyTypeObject* type = nullptr;
  if (type == nullptr) {
    // If NumPy is not imported, no object is an array.
    static PyObject* const name = PyUnicode_InternFromString("numpy");
    const PyRef module = PyRef::Steal(PyImport_GetModule(name));
    PyRef found = module ? PyRef::Steal(PyObject_GetAttrString(module.get(), "ndarray")) : PyRef();
    ClearError();
    if (!found || !PyType_Check(found.get())) return false;
    type = reinterpret_cast<PyTypeObject*>(found.release());
  }
  return PyObject_TypeCheck(object, type);
}

NumpyArray::NumpyArray(PyObject* array) {
  Describe(array);
  readable_ = Read(array);
  if (readable_ || buffer_.obj == nullptr || !DTypeOfFormat(buffer_.format, buffer_.itemsize))
    return;
  PyBuffer_Release(&buffer_);
  copy_ = PyRef::Steal(PyObject_CallMethod(array, "copy", nullptr));
  ClearError();
  readable_ = copy_ && Read(copy_.get());
}

NumpyArray::~NumpyArray() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool NumpyArray::Read(PyObject* array) {
  if (PyObject_GetBuffer(array, &buffer_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    ClearError();
    buffer_ = {};
    return false;
  }
  const std::optional<DType> dtype = DTypeOfFormat(buffer_.format, buffer_.itemsize);
  if (!dtype || buffer_.ndim != ndim_) return false;
  const Py_ssize_t item = buffer_.itemsize;
  const bool complex = *dtype == DType::kComplex64 || *dtype == DType::kComplex128;
  if (reinterpret_cast<uintptr_t>(buffer_.buf) % static_cast<size_t>(complex ? item / 2 : item) !=
      0)
    return false;
  for (int d = 0; d < ndim_; ++d) {
    if (buffer_.strides[d] % item != 0) return false;
    strides_[static_cast<size_t>(d)] = buffer_.strides[d] / item;
  }
  view_ = {.data = buffer_.buf,
           .dtype = *dtype,
           .ndim = ndim_,
           .shape = shape_.data(),
           .strides = strides_.data()};
  return true;
}

void NumpyArray::Describe(PyObject* array) {
  const PyRef dtype = PyRef::Steal(PyObject_GetAttrString(array, "dtype"));
  ClearError();
  dtype_ = dtype ? StrOf(dtype.get()) : "unknown";
  const PyRef shape = PyRef::Steal(PyObject_GetAttrString(array, "shape"));
  ClearError();
  if (!shape || !PyTuple_Check(shape.get()) || PyTuple_GET_SIZE(shape.get()) > kMaxDims) return;
  ndim_ = static_cast<int>(PyTuple_GET_SIZE(shape.get()));
  for (int d = 0; d < ndim_; ++d)
    shape_[static_cast<size_t>(d)] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), d));
  ClearError();
}

}  // namespace msprobe::capture
