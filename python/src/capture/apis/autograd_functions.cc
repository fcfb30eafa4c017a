#include "capture/apis/autograd_functions.h"

#include <algorithm>
#include <iterator>

namespace msprobe::capture {

bool RecordsFunction(std::string_view module, std::string_view name) {
  struct Computes {
    std::string_view module, name;  // name "": all of the module
  };
  constexpr Computes kComputes[] = {{"torch.utils.checkpoint", "CheckpointFunction"},
                                    {"torch.nn.modules._functions", "SyncBatchNorm"},
                                    {"torch.nn.modules._functions", "CrossMapLRN2d"},
                                    {"torch.distributed.nn.functional", ""}};
  if (module != "torch" && !module.starts_with("torch.")) return true;
  return std::any_of(std::begin(kComputes), std::end(kComputes), [&](const Computes& each) {
    return each.module == module && (each.name.empty() || each.name == name);
  });
}

Message AutogradFunctions::Add(PyObject* apply) {
  return Interposer::AddDispatch(apply, [](PyObject* type) { return instance_->ApiOf(type); });
}

const Api* AutogradFunctions::ApiOf(PyObject* type) {
  if (!PyType_Check(type)) return nullptr;
  const KeepError keep;
  const auto found = classes_.find(type);
  if (found != classes_.end() &&
      PyRef::Steal(PyObject_CallNoArgs(found->second.weak.get())).get() == type)
    return found->second.api;
  PyRef weak = PyRef::Steal(PyWeakref_NewRef(type, nullptr));
  const Api* api = New(type);
  if (weak) classes_[type] = {std::move(weak), api};
  return api;
}

const Api* AutogradFunctions::New(PyObject* type) {
  const auto* t = reinterpret_cast<PyTypeObject*>(type);
  const std::string_view module =
      Utf8(t->tp_dict ? PyDict_GetItemString(t->tp_dict, "__module__") : nullptr);
  const std::string_view name = t->tp_name;  // of a class made by Python: without its module
  if (!RecordsFunction(module, name)) return nullptr;
  const Api*& api = names_[std::string(name)];
  if (api == nullptr) {
    Api* made = table_->New("Function", std::string(name), nullptr);
    made->kind = Api::kFunction;
    api = made;
  }
  return api;
}

}  // namespace msprobe::capture
