#include "capture/modules/parameter_names.h"

#include <unordered_set>

#include "capture/python/named_tensors.h"
#include "engine/model/names.h"

namespace msprobe::capture {

void ParameterNames::SetModels(const std::vector<std::pair<std::string, PyObject*>>& models) {
  known_ = false;
  if (models.empty()) return;
  models_.clear();
  for (const auto& [prefix, model] : models) {
    PyRef weak = PyRef::Steal(PyWeakref_NewRef(model, nullptr));
    ClearError();
    if (weak) models_.emplace_back(prefix, std::move(weak));
  }
}

const std::string* ParameterNames::Find(PyObject* parameter) {
  if (!known_) Read();
  auto found = names_.find(parameter);
  if (found == names_.end() && strangers_.insert(parameter).second) {
    AddNames();
    found = names_.find(parameter);
    if (found != names_.end()) strangers_.erase(parameter);
  }
  return found == names_.end() ? nullptr : &found->second;
}

void ParameterNames::AddNames() {
  std::string room;
  for (const auto& [prefix, weak] : models_) {
    for (const auto& [name, tensor] :
         NamedTensors(PyWeakref_GetObject(weak.get()), "named_parameters"))
      names_.emplace(tensor.get(), prefix + std::string(WithoutWrappers(name, &room)));
  }
}

const std::vector<std::pair<std::string, PyRef>>& ParameterNames::InOrder() {
  if (!known_) Read();
  return in_order_;
}

void ParameterNames::Read() {
  known_ = true;
  names_.clear();
  strangers_.clear();
  in_order_.clear();
  std::unordered_set<std::string> taken;
  std::string room;
  for (const auto& [prefix, weak] : models_) {
    PyObject* const model = PyWeakref_GetObject(weak.get());  // None when it is gone
    for (const auto& [name, tensor] : NamedTensors(model, "named_parameters")) {
      std::string shown = prefix + std::string(WithoutWrappers(name, &room));
      // A model may have a part that is called as a wrapper is.
      if (!taken.insert(shown).second) shown = prefix + name;
      PyRef reference = PyRef::Steal(PyWeakref_NewRef(tensor.get(), nullptr));
      ClearError();
      if (reference) in_order_.emplace_back(shown, std::move(reference));
      names_.emplace(tensor.get(), std::move(shown));
    }
  }
}

}  // namespace msprobe::capture
