#include "capture/stability/framework_state.h"

#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "capture/values/generator_state.h"
#include "capture/values/tensor_access.h"

namespace msprobe::capture {

PyObject* Named(const char* name) {
  // Never destroyed: at exit the interpreter is gone before static destructors run.
  static auto& known = *new std::unordered_map<std::string, PyRef>;
  const auto [it, is_new] = known.try_emplace(name);
  if (!is_new) return it->second.get();
  std::string_view rest = name;
  const std::string module(rest.substr(0, rest.find('.')));
  PyRef object = PyRef::Steal(PyImport_ImportModule(module.c_str()));
  std::string path = module;
  while (object && path.size() < rest.size()) {
    const size_t begin = path.size() + 1;
    const std::string part(rest.substr(begin, rest.find('.', begin) - begin));
    path += "." + part;
    PyRef next = PyRef::Steal(PyObject_GetAttrString(object.get(), part.c_str()));
    ClearError();
    // A module of a package that nobody has imported yet.
    if (!next && PyModule_Check(object.get()))
      next = PyRef::Steal(PyImport_ImportModule(path.c_str()));
    ClearError();
    object = std::move(next);
  }
  ClearError();
  it->second = std::move(object);
  return it->second.get();
}

PyRef CallMethod(PyObject* object, const char* name, const PyRef& argument) {
  PyRef result = PyRef::Steal(argument ? PyObject_CallMethod(object, name, "(O)", argument.get())
                                       : PyObject_CallMethod(object, name, nullptr));
  ClearError();
  return result;
}

Context::Context(const char* name, const PyRef& arguments, const PyRef& names) {
  PyObject* const type = Named(name);
  if (type == nullptr) return;
  const PyRef none = PyRef::Steal(PyTuple_New(0));
  manager_ = PyRef::Steal(PyObject_Call(type, (arguments ? arguments : none).get(), names.get()));
  ClearError();
  if (manager_ && !CallMethod(manager_.get(), "__enter__")) manager_ = PyRef();
}

Context::~Context() {
  if (!manager_) return;
  const KeepError keep;
  const PyRef left = PyRef::Steal(
      PyObject_CallMethod(manager_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  ClearError();
}

namespace {

// Saved-tensor hooks that change no value: (detach, `lambda x: x`). The one that packs must not
// return its argument: an operation that saves its own result would keep itself alive, because the
// result refers to its node.
PyRef PlainSaving() {
  static PyMethodDef pack = {"msprobe_pack",
                             [](PyObject*, PyObject* value) {
                               PyRef detached = CallMethod(value, "detach");
                               return detached ? detached.release() : Py_NewRef(value);
                             },
                             METH_O, nullptr};
  static PyMethodDef unpack = {"msprobe_unpack",
                               [](PyObject*, PyObject* value) { return Py_NewRef(value); }, METH_O,
                               nullptr};
  const PyRef first = PyRef::Steal(PyCFunction_New(&pack, nullptr));
  const PyRef second = PyRef::Steal(PyCFunction_New(&unpack, nullptr));
  return PyRef::Steal(PyTuple_Pack(2, first.get(), second.get()));
}

// What a function without arguments answers; false when this PyTorch does not have it.
bool IsTrue(const char* name) {
  PyObject* const function = Named(name);
  const PyRef answer = function ? PyRef::Steal(PyObject_CallNoArgs(function)) : PyRef();
  ClearError();
  return answer && answer.get() == Py_True;
}

// Whether the program has a dispatch mode; to ask takes less time than to remove none.
bool HasModes() {
  PyObject* const ask = Named("torch._C._len_torch_dispatch_stack");
  const PyRef count = ask ? PyRef::Steal(PyObject_CallNoArgs(ask)) : PyRef();
  ClearError();
  return !count || PyObject_IsTrue(count.get()) == 1;
}

void SetAutocastCache(PyObject* enabled) {
  const KeepError keep;
  PyObject* const set = Named("torch.set_autocast_cache_enabled");
  const PyRef done = set ? PyRef::Steal(PyObject_CallOneArg(set, enabled)) : PyRef();
}

bool SameBytes(PyObject* a, PyObject* b) {
  const TensorAccess x(a), y(b);
  return x.readable() && y.readable() && x.view().numel() == y.view().numel() &&
         x.view().dtype == DType::kUInt8 && y.view().dtype == DType::kUInt8 &&
         x.view().IsContiguous() && y.view().IsContiguous() &&
         std::memcmp(x.view().data, y.view().data, static_cast<size_t>(x.view().numel())) == 0;
}

}  // namespace

OwnOperations::OwnOperations()
    : cached_(IsTrue("torch.is_autocast_cache_enabled")),
      modes_(HasModes() ? "torch.utils._python_dispatch._disable_current_modes" : ""),
      hooks_("torch.autograd.graph.saved_tensors_hooks", PlainSaving()) {
  if (cached_) SetAutocastCache(Py_False);
}

OwnOperations::~OwnOperations() {
  if (cached_) SetAutocastCache(Py_True);
}

RandomState RandomState::Take(const std::vector<PyObject*>& tensors,
                              const std::vector<PyRef>& generators, bool of_program) {
  RandomState state;
  if (PyObject* host = Named("torch.default_generator"); host != nullptr)
    state.generators_.push_back(PyRef::Borrow(host));
  const auto add = [&](PyRef generator) {
    if (!generator) return;
    for (const PyRef& known : state.generators_) {
      if (known.get() == generator.get()) return;
    }
    state.generators_.push_back(std::move(generator));
  };
  for (PyObject* tensor : tensors) add(DeviceGeneratorOf(tensor));
  for (const PyRef& generator : generators) add(generator);
  state.of_program_ = of_program;
  state.Read();
  return state;
}

void RandomState::Read() {
  states_.clear();
  for (const PyRef& generator : generators_)
    states_.push_back(CallMethod(generator.get(), "get_state"));
  if (!of_program_) return;
  random_ = CallMethod(Named("random"), "getstate");
  PyObject* const modules = PyImport_GetModuleDict();  // borrowed
  PyObject* const numpy = PyDict_GetItemString(modules, "numpy.random");
  if (numpy != nullptr) numpy_ = CallMethod(numpy, "get_state");
  ClearError();
}

RandomState RandomState::Now() const {
  RandomState now;
  now.generators_ = generators_;
  now.of_program_ = of_program_;
  now.Read();
  return now;
}

bool RandomState::SameAs(const RandomState& other) const {
  if (states_.size() != other.states_.size()) return false;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i] || !other.states_[i] || !SameBytes(states_[i].get(), other.states_[i].get()))
      return false;
  }
  return true;
}

void RandomState::Restore(bool of_program) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i]) (void)CallMethod(generators_[i].get(), "set_state", states_[i]);
  }
  if (!of_program) return;
  if (random_) (void)CallMethod(Named("random"), "setstate", random_);
  if (numpy_) (void)CallMethod(Named("numpy.random"), "set_state", numpy_);
}

}  // namespace msprobe::capture
