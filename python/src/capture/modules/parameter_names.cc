#include "capture/modules/parameter_names.h"

#include <unordered_set>

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
  const auto found = names_.find(parameter);
  return found == names_.end() ? nullptr : &found->second;
}

void ParameterNames::Read() {
  known_ = true;
  names_.clear();
  std::unordered_set<std::string> taken;
  std::string room;
  for (const auto& [prefix, weak] : models_) {
    const PyRef pairs = PyRef::Steal(
        PyObject_CallMethod(PyWeakref_GetObject(weak.get()), "named_parameters", nullptr));
    const PyRef iterator = pairs ? PyRef::Steal(PyObject_GetIter(pairs.get())) : PyRef();
    while (iterator) {
      const PyRef pair = PyRef::Steal(PyIter_Next(iterator.get()));
      PyObject *name, *tensor;
      if (!pair || !PyArg_ParseTuple(pair.get(), "OO", &name, &tensor)) break;
      const std::string_view whole = Utf8(name);
      std::string shown = prefix + std::string(WithoutWrappers(whole, &room));
      // A model may have a part that is called as a wrapper is.
      if (!taken.insert(shown).second) shown = prefix + std::string(whole);
      names_.emplace(tensor, std::move(shown));
    }
    ClearError();
  }
}

}  // namespace msprobe::capture
