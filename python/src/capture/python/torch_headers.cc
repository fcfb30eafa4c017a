#include "capture/python/torch_headers.h"

#include <Python.h>

#include <algorithm>
#include <string>

#include "capture/python/py_ref.h"
#include "engine/base/file.h"

namespace msprobe::capture {
namespace {

// The folder of PyTorch; "" when it is not known.
std::string TorchFolder() {
  const PyRef module = PyRef::Borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "torch"));
  const PyRef file =
      module ? PyRef::Steal(PyObject_GetAttrString(module.get(), "__file__")) : PyRef();
  ClearError();
  return file ? DirectoryName(Utf8(file.get())) : std::string();
}

}  // namespace

bool TorchHeaderHas(std::string_view header, std::initializer_list<std::string_view> texts) {
  const Result<MappedFile> file =
      MappedFile::Open(JoinPath(JoinPath(TorchFolder(), "include"), header));
  if (!file.ok()) return false;
  std::string code;  // without blanks
  for (const char c : file->bytes()) {
    if (c != ' ' && c != '\n' && c != '\r') code += c;
  }
  return std::ranges::all_of(
      texts, [&](std::string_view text) { return code.find(text) != std::string::npos; });
}

}  // namespace msprobe::capture
