#include "capture/python/named_tensors.h"

#include <string_view>
#include <unordered_set>

#include "capture/python/framework.h"
#include "capture/python/module_attributes.h"

namespace msprobe::capture {
namespace {

using Named = std::vector<std::pair<std::string, PyRef>>;

// The walk of torch.nn.Module.named_modules with the members of Module._named_members.
class Walk {
 public:
  Walk(PyObject* members, size_t most, Named* found)
      : members_(members), most_(most), found_(found) {}

  // False when a module has to be asked itself: what was found is not to be used then.
  bool Visit(PyObject* module, const std::string& prefix) {
    static PyObject* const named_modules = PyUnicode_InternFromString("named_modules");
    static PyObject* const children = PyUnicode_InternFromString("_modules");
    if (found_->size() >= most_ || !modules_.insert(module).second) return true;
    if (Overrides(module, named_modules)) return false;
    const PyRef members = OwnAttribute(module, members_);
    if (members && PyDict_CheckExact(members.get())) {
      PyObject *name, *tensor;
      for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &name, &tensor);)
        Add(prefix, name, tensor);
    } else {
      for (const auto& [name, tensor] : Items(members)) Add(prefix, name.get(), tensor.get());
    }
    for (const auto& [name, child] : Items(OwnAttribute(module, children))) {
      if (child.get() == Py_None) continue;
      if (!Visit(child.get(), prefix + std::string(Utf8(name.get())) + ".")) return false;
    }
    return true;
  }

 private:
  void Add(const std::string& prefix, PyObject* name, PyObject* tensor) {
    if (found_->size() >= most_ || tensor == Py_None || !tensors_.insert(tensor).second) return;
    std::string whole;
    const std::string_view last = Utf8(name);
    whole.reserve(prefix.size() + last.size());
    (whole += prefix) += last;
    found_->emplace_back(std::move(whole), PyRef::Borrow(tensor));
  }

  PyObject* members_;  // "_parameters" or "_buffers"
  size_t most_;
  Named* found_;
  std::unordered_set<PyObject*> modules_, tensors_;
};

// False when the method, or one that it calls, is not torch.nn.Module's own.
bool WalkModules(PyObject* model, std::string_view method, size_t most, Named* found) {
  static PyObject* const named_members = PyUnicode_InternFromString("_named_members");
  static PyObject* const named_parameters = PyUnicode_InternFromString("named_parameters");
  static PyObject* const named_buffers = PyUnicode_InternFromString("named_buffers");
  static PyObject* const parameters = PyUnicode_InternFromString("_parameters");
  static PyObject* const buffers = PyUnicode_InternFromString("_buffers");
  const bool of_parameters = method == "named_parameters";
  if (!Framework::Get().is_torch() || (!of_parameters && method != "named_buffers")) return false;
  if (Overrides(model, of_parameters ? named_parameters : named_buffers) ||
      Overrides(model, named_members))
    return false;
  return Walk(of_parameters ? parameters : buffers, most, found).Visit(model, "");
}

}  // namespace

std::vector<std::pair<std::string, PyRef>> NamedTensors(PyObject* model, const char* method,
                                                        size_t most) {
  Named found;
  if (WalkModules(model, method, most, &found)) return found;
  found.clear();
  const PyRef pairs = PyRef::Steal(PyObject_CallMethod(model, method, nullptr));
  const PyRef iterator = pairs ? PyRef::Steal(PyObject_GetIter(pairs.get())) : PyRef();
  while (iterator && found.size() < most) {
    const PyRef pair = PyRef::Steal(PyIter_Next(iterator.get()));
    PyObject *name, *tensor;
    if (!pair || !PyArg_ParseTuple(pair.get(), "OO", &name, &tensor)) break;
    found.emplace_back(std::string(Utf8(name)), PyRef::Borrow(tensor));
  }
  ClearError();
  return found;
}

}  // namespace msprobe::capture
