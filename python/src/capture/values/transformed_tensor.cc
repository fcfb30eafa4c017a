#include "capture/values/transformed_tensor.h"

#include <numeric>
#include <string_view>

#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxLevels = 64;

// The result of a function of one argument; null without an error set when it raises.
PyRef Ask(PyObject* function, PyObject* tensor) {
  PyRef answer = PyRef::Steal(PyObject_CallOneArg(function, tensor));
  if (!answer) ClearError();
  return answer;
}

std::string TextOf(PyObject* tensor, const char* attribute) {
  const PyRef value = PyRef::Steal(PyObject_GetAttrString(tensor, attribute));
  ClearError();
  return value ? StrOf(value.get()) : std::string();
}

// Each wrapper counts dimensions in the tensor that it wraps, without those of the wrappers further
// inside. `dims`: of the wrappers, from the outside; the tensor inside all of them has `rank`
// dimensions.
std::vector<int64_t> InnerDims(const std::vector<int64_t>& dims, int64_t rank) {
  std::vector<int64_t> left(static_cast<size_t>(rank)), inner;
  std::iota(left.begin(), left.end(), 0);
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    if (*dim < 0 || *dim >= static_cast<int64_t>(left.size())) return {};
    inner.push_back(left[static_cast<size_t>(*dim)]);
    left.erase(left.begin() + *dim);
  }
  return inner;
}

}  // namespace

TransformedTensor Unwrap(PyObject* tensor) {
  const TorchApi::Transforms& transforms = TorchApi::Get().transforms;
  TransformedTensor found;
  if (transforms.unwrapped == nullptr) return found;
  std::vector<int64_t> dims;
  PyRef at = PyRef::Borrow(tensor);
  for (int level = 0; level < kMaxLevels; ++level) {
    const bool batched = Ask(transforms.is_batched, at.get()).get() == Py_True;
    if (!batched && Ask(transforms.is_tracked, at.get()).get() != Py_True) break;
    if (batched) {
      const PyRef dim = Ask(transforms.batch_dim, at.get());
      dims.push_back(dim ? PyLong_AsLongLong(dim.get()) : -1);
      ClearError();
    }
    at = Ask(transforms.unwrapped, at.get());
    if (!at) return found;
    found.inner = at;
  }
  if (dims.empty()) return found;
  const PyRef shape = PyRef::Steal(PyObject_GetAttrString(found.inner.get(), "shape"));
  const Py_ssize_t rank = shape ? PySequence_Size(shape.get()) : -1;
  ClearError();
  if (rank >= 0) found.batch_dims = InnerDims(dims, rank);
  return found;
}

std::string WhyUnreadable(PyObject* tensor) {
  const TorchApi& torch = TorchApi::Get();
  const auto is_a = [&](PyTypeObject* type) {
    return type != nullptr && PyObject_TypeCheck(tensor, type);
  };
  if (is_a(torch.fake_tensor)) return "fake tensor";
  if (is_a(torch.functional_tensor)) return "functional tensor";
  if (torch.transforms.is_functional != nullptr &&
      Ask(torch.transforms.is_functional, tensor).get() == Py_True)
    return "functional tensor";
  if (TextOf(tensor, "is_nested") == "True") return "nested tensor";
  if (TextOf(tensor, "device") == "meta") return "meta tensor";
  if (TextOf(tensor, "is_quantized") == "True") return "quantized tensor";
  constexpr std::string_view kPrefix = "torch.";
  const std::string layout = TextOf(tensor, "layout");
  if (layout.starts_with(kPrefix) && layout != "torch.strided")
    return layout.substr(kPrefix.size()) + " tensor";
  if (!torch.IsPlainTensor(tensor)) {
    const std::string_view name = TypeName(reinterpret_cast<PyObject*>(Py_TYPE(tensor)));
    return "subclass " + std::string(name.substr(name.rfind('.') + 1)) + " without data";
  }
  return "no data";
}

}  // namespace msprobe::capture
