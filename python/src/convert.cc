#include "convert.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "engine/base/log.h"
#include "engine/base/messages/language.h"
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
                        "An error that the user can correct; the message says how.");
  config_error = NewError(m, "ConfigError", error_base,
                          "A configuration file or keyword argument is not valid.");
  dump_error = NewError(m, "DumpError", error_base,
                        "A dump or tensor file is damaged, truncated or not one.");
  NewError(m, "DivergenceError", error_base,
           "The run differs from its baseline, and \"baseline_action\" is \"raise\".");
  usage_error =
      NewError(m, "UsageError", error_base, "A call or combination of arguments is not valid.");
  file_error = NewError(m, "FileError", error_base,
                        "A file or folder is missing or cannot be read or written.");
  unsupported_error =
      NewError(m, "UnsupportedError", error_base, "The request is valid, but not supported here.");
  internal_error =
      NewError(m, "InternalError", PyExc_RuntimeError, "A bug of msprobe: please report it.");
}

void Raise(const Status& status) {
  std::string text = status.ShownMessage();
  if (const Message& hint = status.HintAsMessage(); !hint.empty())
    text += "\n" + "hint"_t.Shown() + ": " + hint.Shown();
  PyErr_SetString(TypeFor(status.code()), text.c_str());
  throw nb::python_error();
}

namespace {

[[noreturn]] void RaiseArgument(std::string_view name, Message expected, nb::handle value) {
  Raise(InvalidArgument("keyword argument {}"_t(name))
            .Expected(std::move(expected))
            .Found(Excerpt(nb::repr(value).c_str())));
}

bool IsNumber(nb::handle value) {
  return nb::isinstance<nb::int_>(value) && !PyBool_Check(value.ptr());
}

// "7" or "3-6".
std::string StepText(std::string_view name, nb::handle value, nb::handle whole) {
  if (!IsNumber(value) && !nb::isinstance<nb::str>(value))
    RaiseArgument(name, "a number, a text such as \"3-6\", or a list of them"_t, whole);
  return nb::str(value).c_str();
}

}  // namespace

std::optional<std::string> TextArgument(std::string_view name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  if (!nb::isinstance<nb::str>(value)) RaiseArgument(name, "a text"_t, value);
  return nb::cast<std::string>(value);
}

std::optional<std::string> PathArgument(std::string_view name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  const nb::object path = nb::steal(PyOS_FSPath(value.ptr()));
  if (!path.is_valid() || !nb::isinstance<nb::str>(path)) {
    PyErr_Clear();
    RaiseArgument(name, "a path"_t, value);
  }
  return nb::cast<std::string>(path);
}

std::optional<std::vector<std::string>> StepArgument(std::string_view name, nb::handle value) {
  if (value.is_none()) return std::nullopt;
  std::vector<std::string> steps;
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    for (nb::handle item : value) steps.push_back(StepText(name, item, value));
  } else {
    steps.push_back(StepText(name, value, value));
  }
  return steps;
}

std::optional<dump::TokenCounts> TokensArgument(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  dump::TokenCounts counts;
  bool good = nb::isinstance<nb::dict>(value);
  if (good) {
    for (const auto& [request, tokens] : nb::cast<nb::dict>(value)) {
      int64_t count = -1;
      good = good && nb::isinstance<nb::str>(request) && PyLong_CheckExact(tokens.ptr()) &&
             nb::try_cast(tokens, count) && count >= 0;
      if (good) counts.emplace_back(nb::cast<std::string>(request), count);
    }
  }
  if (good) return counts;
  Log(LogLevel::kWarning,
      "scheduled_tokens: expected {{request id: number of tokens}} such as "
      "{{\"req-1\": 128}}, found {}; whole tensors are recorded"_t(
          nb::isinstance<nb::dict>(value) ? "other keys or values"_t
                                          : Message(std::string(Py_TYPE(value.ptr())->tp_name))));
  return std::nullopt;
}

ArrayArgument::ArrayArgument(nb::handle object) : keep_(nb::borrow(object)) {
  // A script that has a tensor has imported PyTorch.
  if (capture::TorchApi::Get().tensor_base == nullptr &&
      PyDict_GetItemString(PyImport_GetModuleDict(), "torch") != nullptr)
    RaiseIfError(capture::TorchApi::Load());
  if (capture::TorchApi::Get().tensor_base != nullptr &&
      capture::TorchApi::Get().IsTensor(object.ptr())) {
    const capture::TensorAccess access(object.ptr());
    if (access.resolved() != nullptr) keep_ = nb::borrow(access.resolved());
    if (!access.readable())
      throw nb::type_error(
          "expected a dense tensor, found one whose elements cannot be read as a strided array");
    shape_.assign(access.shape().begin(), access.shape().end());
    if (access.view().strides != nullptr)
      strides_.assign(access.view().strides, access.view().strides + access.view().ndim);
    view_ = access.view();
  } else {
    nb::ndarray<nb::ro, nb::device::cpu> array;
    if (!nb::try_cast(object, array))
      throw nb::type_error("expected a tensor or an array of numbers in CPU memory");
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
