#include "capture/recorders/cell_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/attributes.h"
#include "capture/python/framework.h"
#include "capture/values/framework_tensor.h"

namespace msprobe::capture {
namespace {

bool AreTensors(const std::vector<PyRef>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](const PyRef& value) { return Framework::Get().IsTensor(value.get()); });
}

struct Weight {
  std::string name;
  PyRef parameter;
};
std::vector<Weight> WeightsOf(PyObject* optimizer) {
  std::vector<Weight> weights;
  for (PyRef& parameter : Elements(Attribute(optimizer, "parameters").get())) {
    const PyRef name = Attribute(parameter.get(), "name");
    weights.push_back(
        {name ? StrOf(name.get()) : std::to_string(weights.size()), std::move(parameter)});
  }
  return weights;
}

// `values` under the names of the weights, in their order.
PyRef Named(const std::vector<Weight>& weights, const std::vector<PyRef>& values) {
  PyRef dict = Dict();
  for (size_t i = 0; i < std::min(weights.size(), values.size()); ++i)
    Set(dict, weights[i].name, values[i]);
  return dict;
}

PyRef ParametersOf(const std::vector<Weight>& weights) {
  PyRef dict = Dict();
  for (const Weight& weight : weights) Set(dict, weight.name, weight.parameter);
  return dict;
}

// The element of a tensor of one element as a Python float, with the fewest digits that are this
// number in the tensor's own dtype: 0.001, and not 0.0010000000474974513. `at`: of several elements
// the one at this place, or the last. Null: it is no such tensor.
PyRef Number(PyObject* value, int64_t at = 0) {
  if (PyFloat_Check(value) || PyLong_Check(value)) return PyRef::Borrow(value);
  if (!Framework::Get().IsTensor(value)) return PyRef();
  const FrameworkTensor tensor(value);
  if (!tensor.readable() || tensor.view().numel() == 0) return PyRef();
  const TensorView& view = tensor.view();
  if (!view.IsContiguous()) return PyRef();
  const int64_t index = std::clamp<int64_t>(at, 0, view.numel() - 1);
  switch (view.dtype) {
    case DType::kFloat32: {
      const float number = static_cast<const float*>(view.data)[index];
      const std::string digits = fmt::format("{}", number);
      return PyRef::Steal(PyFloat_FromDouble(std::strtod(digits.c_str(), nullptr)));
    }
    case DType::kFloat64:
      return PyRef::Steal(PyFloat_FromDouble(static_cast<const double*>(view.data)[index]));
    case DType::kInt32:
      return PyRef::Steal(PyLong_FromLong(static_cast<const int32_t*>(view.data)[index]));
    default:
      return PyRef();
  }
}

// The names of the arguments under which PyTorch's optimizers have the same.
constexpr const char* kHyperParameters[][2] = {{"weight_decay", "weight_decay"},
                                               {"momentum", "momentum"},
                                               {"dampening", "dampening"},
                                               {"eps", "eps"},
                                               {"epsilon", "eps"},
                                               {"use_nesterov", "nesterov"},
                                               {"nesterov", "nesterov"},
                                               {"use_amsgrad", "amsgrad"},
                                               {"loss_scale", "loss_scale"}};

// Element `index` of a tuple with one value for each weight, else the value for all.
PyRef OfWeight(const PyRef& value, size_t index) {
  if (!value || !PyTuple_Check(value.get())) return PyRef::Borrow(value.get());
  if (static_cast<Py_ssize_t>(index) >= PyTuple_GET_SIZE(value.get())) return PyRef();
  return PyRef::Borrow(PyTuple_GET_ITEM(value.get(), static_cast<Py_ssize_t>(index)));
}

// The learning rate of this step. A schedule that is a Cell is not asked: it would run operators.
PyRef RateOf(PyObject* optimizer, size_t index) {
  const PyRef rate = OfWeight(Attribute(optimizer, "learning_rate"), index);
  if (!rate) return PyRef();
  if (PyRef number = Number(rate.get())) return number;
  const PyRef table = Attribute(rate.get(), "learning_rate"),  // of a list of rates
      step = Attribute(optimizer, "global_step");
  const PyRef now = step ? Number(step.get()) : PyRef();
  return table && now ? Number(table.get(), PyLong_AsLongLong(now.get())) : PyRef();
}

PyRef HyperParametersAt(PyObject* optimizer, size_t index) {
  PyRef group = Dict();
  Set(group, "lr", RateOf(optimizer, index));
  for (const auto& [own, shown] : kHyperParameters) {
    const PyRef value = OfWeight(Attribute(optimizer, own), index);
    if (!value) continue;
    Set(group, shown, PyBool_Check(value.get()) ? PyRef::Borrow(value.get()) : Number(value.get()));
  }
  const PyRef first = Attribute(optimizer, "beta1"), second = Attribute(optimizer, "beta2");
  const PyRef beta1 = first ? Number(first.get()) : PyRef(),
              beta2 = second ? Number(second.get()) : PyRef();
  if (beta1 && beta2) Set(group, "betas", PyRef::Steal(PyTuple_Pack(2, beta1.get(), beta2.get())));
  // Where weight decay leaves this weight out.
  const PyRef flag = OfWeight(Attribute(optimizer, "decay_flags"), index);
  if (flag && flag.get() == Py_False) {
    static PyObject* const none = PyFloat_FromDouble(0);
    Set(group, "weight_decay", PyRef::Borrow(none));
  }
  return group;
}

// The hyper-parameters of all weights, those that are the same once. Of mint.optim the optimizer's
// own groups.
PyRef CellHyperParameters(PyObject* optimizer, size_t count) {
  const std::vector<PyRef> own = Elements(Attribute(optimizer, "param_groups").get());
  PyRef list = PyRef::Steal(PyList_New(0));
  for (const PyRef& group : own) {
    if (!PyDict_Check(group.get())) continue;
    PyRef shown = Dict();
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(group.get(), &at, &name, &value);) {
      if (Utf8(name) == "params") continue;
      PyRef number = Number(value);
      Set(shown, std::string(Utf8(name)), number ? std::move(number) : PyRef::Borrow(value));
    }
    PyList_Append(list.get(), shown.get());
  }
  if (!own.empty()) return list;
  for (size_t i = 0; i < count; ++i) {
    const PyRef group = HyperParametersAt(optimizer, i);
    if (PySequence_Contains(list.get(), group.get()) == 0) PyList_Append(list.get(), group.get());
  }
  ClearError();
  return list;
}

// {"fc.weight": {"moment1": ..}}. The moments' attributes have the names that MindSpore gives them.
PyRef CellState(PyObject* optimizer, const std::vector<Weight>& weights) {
  PyRef dict = Dict();
  const PyRef members = Attribute(optimizer, "__dict__");
  if (!members || !PyDict_Check(members.get())) return dict;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(members.get(), &at, &key, &value);) {
    const std::string_view name = Utf8(key);
    const std::vector<PyRef> moments = Elements(value);
    if (moments.size() != weights.size() || weights.empty() || !AreTensors(moments) ||
        moments[0].get() == weights[0].parameter.get() || name.starts_with('_') ||
        name.find("learning_rate") != name.npos || name.find("weight_decay") != name.npos)
      continue;
    for (size_t i = 0; i < weights.size(); ++i) {
      PyObject* of_weight = PyDict_GetItemString(dict.get(), weights[i].name.c_str());
      if (of_weight == nullptr) {
        Set(dict, weights[i].name, Dict());
        of_weight = PyDict_GetItemString(dict.get(), weights[i].name.c_str());
      }
      PyDict_SetItem(of_weight, key, moments[i].get());
    }
  }
  ClearError();
  return dict;
}

}  // namespace

PyRef CellOptimizerInputs(PyObject* optimizer, PyObject* gradients) {
  PyRef dict = Dict();
  const std::vector<Weight> weights = WeightsOf(optimizer);
  Set(dict, "param_groups", CellHyperParameters(optimizer, weights.size()));
  Set(dict, "gradients", Named(weights, Elements(gradients)));
  Set(dict, "weights", ParametersOf(weights));
  Set(dict, "state", CellState(optimizer, weights));
  return dict;
}

PyRef CellOptimizerOutputs(PyObject* optimizer) {
  PyRef dict = Dict();
  const std::vector<Weight> weights = WeightsOf(optimizer);
  Set(dict, "weights", ParametersOf(weights));
  Set(dict, "state", CellState(optimizer, weights));
  return dict;
}

}  // namespace msprobe::capture
