// The conversions of the bindings, all of them: errors to exceptions, Python arrays to views.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/slice_rules.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::python {

namespace nb = nanobind;

// Makes msprobe's exceptions members of the module. Two trees: MsprobeError is what a user can fix
// (ConfigError, DumpError, UsageError, FileError, UnsupportedError), InternalError is our bug.
void DefineErrors(nb::module_& m);

[[noreturn]] void Raise(const Status& status);
inline void RaiseIfError(const Status& status) {
  if (!status.ok()) Raise(status);
}
template <typename T>
T ValueOrRaise(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result).value();
}

// Keyword arguments of PrecisionDebugger; None is left to the configuration. Raise UsageError that
// names the argument.
std::optional<std::string> TextArgument(std::string_view name, nb::handle value);
std::optional<std::string> PathArgument(std::string_view name,
                                        nb::handle value);  // str or PathLike
std::optional<std::vector<std::string>> StepArgument(
    std::string_view name, nb::handle value);  // a number, a text such as "3-6", or a list of them

// scheduled_tokens={request id: number of tokens}. Never raises. nullopt for None; for any other
// value that is not such a dict nullopt and a warning.
std::optional<dump::TokenCounts> TokensArgument(nb::handle value);

// A torch.Tensor, or anything with the buffer protocol or DLPack's CPU form (NumPy). Keeps the
// object alive.
class ArrayArgument {
 public:
  explicit ArrayArgument(nb::handle object);  // raises TypeError
  const TensorView& view() const { return view_; }

 private:
  nb::object keep_;  // what owns the elements
  TensorView view_;
  std::vector<int64_t> shape_, strides_;
};

}  // namespace msprobe::python
