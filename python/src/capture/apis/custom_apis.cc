#include "capture/apis/custom_apis.h"

#include "capture/calls/observed_callable.h"
#include "capture/collectives/collective_call.h"

namespace msprobe::capture {
namespace {

// The text attribute `name` of `object`, "" when it has none.
std::string TextAttribute(PyObject* object, const char* name) {
  const PyRef text = PyRef::Steal(PyObject_GetAttrString(object, name));
  ClearError();
  return std::string(Utf8(text.get()));
}

// The function below the wrappers that autotuning puts around a kernel.
std::string KernelName(PyObject* kernel) {
  PyRef at = PyRef::Borrow(kernel);
  for (int depth = 0; depth < 16; ++depth) {
    PyRef inner = PyRef::Steal(PyObject_GetAttrString(at.get(), "fn"));
    ClearError();
    if (!inner) break;
    at = std::move(inner);
  }
  std::string name = TextAttribute(at.get(), "__name__");
  return name.empty() ? std::string(TypeName(reinterpret_cast<PyObject*>(Py_TYPE(kernel)))) : name;
}

}  // namespace

Message CustomApis::Register(const std::string& prefix, PyObject* module, PyObject* name) {
  const PyRef target = PyRef::Steal(PyObject_GetAttr(module, name));
  if (!target) {
    ClearError();
    return "it has no such attribute"_t;
  }
  if (OriginalOf(target.get()) != nullptr) return {};  // registered already
  if (!PyCallable_Check(target.get())) return "it cannot be called"_t;
  for (CustomApi& custom : custom_) {
    if (custom.original.get() != target.get() || custom.stand_in) continue;
    const bool again = custom.api->off;
    custom.api->off = false;
    if (again) custom.api->prefix = prefix;
    if (again) custom.api->stem = prefix + "." + std::string(Utf8(name)) + ".";
    if (again) custom.api->counter = recording_->counters.Of(custom.api->stem);
    return {};
  }
  if (const Api* api = Interposer::Find(target.get()))
    return "it is recorded already, as {}"_t(api->stem.substr(0, api->stem.size() - 1));
  Api* api = table_->New(prefix, std::string(Utf8(name)), target.get());
  Message reason;
  while_removed_([&] { reason = Interposer::Add(module, name, target.get(), api); });
  CustomApi custom{PyRef::Borrow(module), PyRef::Borrow(name), target, PyRef(), api};
  if (!reason.empty()) {
    custom.stand_in = MakeObservedCallable(target.get(), api);
    if (!custom.stand_in || PyObject_SetAttr(module, name, custom.stand_in.get()) != 0) {
      ClearError();
      return "{}, and the attribute cannot be set"_t(reason);
    }
  }
  custom_.push_back(std::move(custom));
  return {};
}

void CustomApis::Restore(PyObject* module, PyObject* name) {
  const PyRef now = PyRef::Steal(PyObject_GetAttr(module, name));
  ClearError();
  for (auto it = custom_.begin(); it != custom_.end(); ++it) {
    const int same = PyObject_RichCompareBool(it->name.get(), name, Py_EQ);
    if (it->module.get() != module || same != 1) continue;
    it->api->off = true;
    if (!it->stand_in) continue;  // observed in place: `off` is enough to end that
    if (now.get() == it->stand_in.get() && PyObject_SetAttr(module, name, it->original.get()) != 0)
      ClearError();
    custom_.erase(it);
    return;
  }
}

void CustomApis::AddOperator(const std::string& prefix, const std::string& name,
                             const std::vector<PyObject*>& objects) {
  if (objects.empty() || operators_.count(objects.front()) > 0) return;
  Observe(table_->New(prefix, name, objects.front()), objects);
}

void CustomApis::AddCollective(const std::string& name, Api::Kind kind,
                               const std::vector<PyObject*>& objects) {
  if (objects.empty() || operators_.count(objects.front()) > 0) return;
  Api* const api = table_->New("Distributed", "functional_" + name, objects.front());
  api->kind = kind;
  // The packet has no schema; its overloads have.
  if (kind == Api::kCall)
    api->collective = std::make_shared<const CollectiveSignature>(name, objects.back());
  Observe(api, objects);
}

void CustomApis::Observe(const Api* api, const std::vector<PyObject*>& objects) {
  for (PyObject* object : objects) {
    operators_.emplace(Py_NewRef(object), api);
    const PyRef call = PyRef::Steal(
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__call__"));
    ClearError();
    if (!call) continue;
    while_removed_([&] {
      (void)Interposer::AddDispatch(call.get(), [](PyObject* self) -> const Api* {
        const auto& known = instance_->operators_;
        const auto it = known.find(self);
        return it == known.end() ? nullptr : it->second;
      });
    });
  }
}

Message CustomApis::AddKernelRun(PyObject* run) {
  Message reason;
  while_removed_([&] {
    reason = Interposer::AddDispatch(run, [](PyObject* self) -> const Api* {
      const KeepError keep;
      const std::string name = KernelName(self);
      const Api*& api = instance_->kernels_[name];
      if (api == nullptr) {
        Api* made = instance_->table_->New("Triton", name, nullptr);
        made->output_is_arguments = true;
        api = made;
      }
      return api;
    });
  });
  return reason;
}

}  // namespace msprobe::capture
