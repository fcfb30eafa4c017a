#include "convert.h"

#include <nanobind/ndarray.h>

#include "capture/tensor_access.h"
#include "capture/torch_api.h"
#include "engine/tensor/dlpack.h"

namespace msprobe::python {
namespace {

PyObject *error_base, *config_error, *dump_error, *usage_error, *file_error, *unsupported_error,
    *internal_error;

PyObject* NewError(nb::module_& m, const char* name, PyObject* base, const char* doc) {
  PyObject* type =
      PyErr_NewExceptionWithDoc((std::string("msprobe.") + name).c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  m.attr(name) = nb::handle(type);
  return type;
}

PyObject* TypeFor(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidConfig:
      return config_error;
    case ErrorCode::kInvalidDump:
      return dump_error;
    case ErrorCode::kInvalidArgument:
      return usage_error;
    case ErrorCode::kNotFound:
    case ErrorCode::kIo:
      return file_error;
    case ErrorCode::kUnsupported:
      return unsupported_error;
    case ErrorCode::kOk:
    case ErrorCode::kInternal:
      break;
  }
  return internal_error;
}

}  // namespace

void DefineErrors(nb::module_& m) {
  error_base = NewError(m, "MsprobeError", PyExc_Exception,
                        "Something the user can mend; the message says what and how.");
  config_error = NewError(m, "ConfigError", error_base,
                          "A configuration file or keyword argument is not valid.");
  dump_error = NewError(m, "DumpError", error_base,
                        "A dump or tensor file is damaged, truncated or not one.");
  usage_error =
      NewError(m, "UsageError", error_base, "A call or combination of arguments is not valid.");
  file_error = NewError(m, "FileError", error_base,
                        "A file or folder is missing or cannot be read or written.");
  unsupported_error =
      NewError(m, "UnsupportedError", error_base, "Understood, and not possible here.");
  internal_error =
      NewError(m, "InternalError", PyExc_RuntimeError, "A bug of msprobe: please report it.");
}

void Raise(const Status& status) {
  std::string text = status.message();
  if (!status.hint().empty()) text += "\nhint: " + status.hint();
  PyErr_SetString(TypeFor(status.code()), text.c_str());
  throw nb::python_error();
}

ArrayArgument::ArrayArgument(nb::handle object) : keep_(nb::borrow(object)) {
  if (capture::TorchApi::Get().tensor_base != nullptr &&
      capture::TorchApi::Get().IsTensor(object.ptr())) {
    const capture::TensorAccess access(object.ptr());
    if (!access.readable())
      throw nb::type_error(
          "expected a dense tensor, found one whose elements cannot be read as a strided array");
    shape_.assign(access.shape().begin(), access.shape().end());
    if (access.view().strides != nullptr)
      strides_.assign(access.view().strides, access.view().strides + access.view().ndim);
    view_ = access.view();
  } else {
    const auto array = nb::cast<nb::ndarray<nb::ro, nb::device::cpu>>(object);
    const nb::dlpack::dtype type = array.dtype();
    const std::optional<DType> dtype = dlpack::ToDType({type.code, type.bits, type.lanes});
    if (!dtype)
      throw nb::type_error(
          "expected an array of numbers, found a dtype without a PyTorch counterpart");
    for (size_t d = 0; d < array.ndim(); ++d) {
      shape_.push_back(static_cast<int64_t>(array.shape(d)));
      strides_.push_back(array.stride(d));
    }
    view_ = {.data = array.data(), .dtype = *dtype, .ndim = static_cast<int>(array.ndim())};
  }
  view_.shape = shape_.data();
  view_.strides = strides_.size() == shape_.size() ? strides_.data() : nullptr;
}

}  // namespace msprobe::python
