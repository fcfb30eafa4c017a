#include "capture/recorders/optimizer_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/calls/call_place.h"
#include "capture/python/attributes.h"
#include "capture/python/torch_api.h"
#include "capture/recorders/cell_optimizer.h"

namespace msprobe::capture {
namespace {

// Members of a parameter group that are not hyper-parameters: its parameters, and how the step is
// computed, which changes no more than rounding (ImplementationOf).
constexpr std::string_view kNoHyperParameters[] = {"params", "param_names", "foreach",
                                                   "fused",  "capturable",  "differentiable"};

std::vector<PyRef> GroupsOf(PyObject* optimizer) {
  std::vector<PyRef> groups = Elements(Attribute(optimizer, "param_groups").get());
  std::erase_if(groups, [](const PyRef& group) { return !PyDict_Check(group.get()); });
  return groups;
}

// How PyTorch computes a step when it is told so, a Python str; null when it chooses itself.
PyRef ImplementationOf(PyObject* fused, PyObject* foreach) {
  if (fused == Py_True) return PyRef::Steal(PyUnicode_FromString("fused"));
  if (foreach == Py_True) return PyRef::Steal(PyUnicode_FromString("foreach"));
  if (foreach == Py_False) return PyRef::Steal(PyUnicode_FromString("for-loop"));
  return PyRef();
}

PyRef HyperParameters(PyObject* optimizer) {
  PyRef list = PyRef::Steal(PyList_New(0));
  for (const PyRef& group : GroupsOf(optimizer)) {
    const PyRef copy = PyRef::Steal(PyDict_Copy(group.get()));
    const PyRef implementation = ImplementationOf(PyDict_GetItemString(copy.get(), "fused"),
                                                  PyDict_GetItemString(copy.get(), "foreach"));
    for (const std::string_view name : kNoHyperParameters) {
      if (PyDict_GetItemString(copy.get(), name.data()) != nullptr)
        PyDict_DelItemString(copy.get(), name.data());
    }
    Set(copy, "implementation", implementation);
    // `weights` lists the parameters of the first group, then those of the second one, ...
    const std::vector<PyRef> members = Elements(PyDict_GetItemString(group.get(), "params"));
    const auto tensors = std::count_if(members.begin(), members.end(), [](const PyRef& member) {
      return TorchApi::Get().IsTensor(member.get());
    });
    Set(copy, "params", PyRef::Steal(PyLong_FromSsize_t(tensors)));
    PyList_Append(list.get(), copy.get());
  }
  return list;
}

PyRef Gradients(const std::vector<std::pair<std::string, PyRef>>& parameters) {
  PyRef dict = Dict();
  for (const auto& [name, parameter] : parameters)
    Set(dict, name, PyRef::Steal(TorchApi::Get().grad(parameter.get())));
  ClearError();
  return dict;
}

PyRef Weights(const std::vector<std::pair<std::string, PyRef>>& parameters) {
  PyRef dict = Dict();
  for (const auto& [name, parameter] : parameters) Set(dict, name, parameter);
  return dict;
}

// What the optimizer keeps for each parameter, and for the group as a whole (keys that are text).
PyRef State(PyObject* optimizer, const std::vector<std::pair<std::string, PyRef>>& parameters) {
  PyRef dict = Dict();
  const PyRef state = Attribute(optimizer, "state");
  if (!state || !PyDict_Check(state.get())) return dict;
  for (const auto& [name, parameter] : parameters) {
    // Not through [], which would make an element.
    PyObject* const of_parameter = PyDict_GetItemWithError(state.get(), parameter.get());
    ClearError();
    if (of_parameter != nullptr) Set(dict, name, PyRef::Borrow(of_parameter));
  }
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(state.get(), &at, &key, &value);) {
    if (PyUnicode_Check(key)) Set(dict, std::string(Utf8(key)), PyRef::Borrow(value));
  }
  return dict;
}

PyRef ScalerState(PyObject* scaler, PyObject* optimizer) {
  const PyRef states = Attribute(scaler, "_per_optimizer_states");
  const PyRef id = PyRef::Steal(PyLong_FromVoidPtr(optimizer));
  if (!states || !id || !PyDict_Check(states.get())) return PyRef();
  PyObject* state = PyDict_GetItemWithError(states.get(), id.get());
  ClearError();
  return PyRef::Borrow(state);
}

// {device: tensor}; null: gradients were not checked yet.
PyRef FoundInf(PyObject* state) {
  if (state == nullptr || !PyDict_Check(state)) return PyRef();
  PyRef found = PyRef::Borrow(PyDict_GetItemString(state, "found_inf_per_device"));
  if (!found || !PyDict_Check(found.get()) || PyDict_Size(found.get()) == 0) return PyRef();
  return found;
}

PyRef FoundInfOfAll(PyObject* scaler) {
  PyRef list = PyRef::Steal(PyList_New(0));
  const PyRef states = Attribute(scaler, "_per_optimizer_states");
  PyObject *key, *value;
  for (Py_ssize_t at = 0;
       states && PyDict_Check(states.get()) && PyDict_Next(states.get(), &at, &key, &value);) {
    if (const PyRef found = FoundInf(value)) PyList_Append(list.get(), found.get());
  }
  return list;
}

// The argument of this name or, when it is given by position, at this place; borrowed.
PyObject* Argument(const CallArgs& args, Py_ssize_t place, std::string_view name) {
  if (place < args.count) return args.positional[place];
  const Py_ssize_t names = args.names == nullptr ? 0 : PyTuple_GET_SIZE(args.names);
  for (Py_ssize_t i = 0; i < names; ++i) {
    if (Utf8(PyTuple_GET_ITEM(args.names, i)) == name) return args.positional[args.count + i];
  }
  PyObject* found =
      args.dict == nullptr ? nullptr : PyDict_GetItemString(args.dict, std::string(name).c_str());
  return found;
}

}  // namespace

std::string OptimizerRecorder::NameOf(PyObject* parameter, const std::string& otherwise) {
  const std::string* name = names_->Find(parameter);
  return name != nullptr ? *name : otherwise;
}

OptimizerRecorder::Named OptimizerRecorder::ParametersOf(PyObject* optimizer) {
  Named parameters;
  const std::vector<PyRef> groups = GroupsOf(optimizer);
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<PyRef> members = Elements(PyDict_GetItemString(groups[g].get(), "params"));
    // Of an optimizer that was constructed with named_parameters().
    const std::vector<PyRef> own = Elements(PyDict_GetItemString(groups[g].get(), "param_names"));
    for (size_t i = 0; i < members.size(); ++i) {
      if (!TorchApi::Get().IsTensor(members[i].get())) continue;
      const std::string given = i < own.size() ? std::string(Utf8(own[i].get())) : "";
      const std::string otherwise = given.empty() ? fmt::format("{}.{}", g, i) : given;
      parameters.emplace_back(NameOf(members[i].get(), otherwise), members[i]);
    }
  }
  return parameters;
}

OptimizerRecorder::Named OptimizerRecorder::ParametersIn(PyObject* iterable,
                                                         Replacement* replacement) {
  Named parameters;
  if (iterable == nullptr) return parameters;
  const auto add = [&](PyObject* value) {
    const std::string index = std::to_string(parameters.size());
    if (TorchApi::Get().IsTensor(value))
      parameters.emplace_back(NameOf(value, index), PyRef::Borrow(value));
  };
  if (TorchApi::Get().IsTensor(iterable)) {
    add(iterable);
    return parameters;
  }
  const PyRef iterator = PyRef::Steal(PyObject_GetIter(iterable));
  const PyRef values = PyRef::Steal(PyList_New(0));
  while (iterator) {
    const PyRef value = PyRef::Steal(PyIter_Next(iterator.get()));
    if (!value) break;
    add(value.get());
    PyList_Append(values.get(), value.get());
  }
  // An iterator, such as model.parameters(), gives its values only once: the function gets a
  // generator of the same values, which ends as the iterator has ended.
  if (iterator.get() == iterable && again_) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    replacement->argument = iterable;
    replacement->with = PyRef::Steal(PyObject_CallFunctionObjArgs(
        again_.get(), values.get(), error == nullptr ? Py_None : error, nullptr));
    for (PyObject* each : {type, error, traceback}) Py_XDECREF(each);
  }
  ClearError();
  return parameters;
}

bool OptimizerRecorder::Resume() {
  if (recording_->session->collecting()) {
    resumed_ += resumed_ > 0;
    return true;
  }
  if (!stopped_ || !open_()) return false;
  ++resumed_;
  return true;
}

void* OptimizerRecorder::EnterOptimizer(const OptimizerApi& api, const CallArgs& args,
                                        Replacement* replacement) {
  if (!recording_->optimizers_wanted) return nullptr;
  if (!recording_->session->collecting() && !stopped_) return nullptr;
  Step* step = nullptr;
  {
    const KeepError keep;
    const Interposer::Pause pause;
    const QuietTorch quiet;
    step = recording_->Guarded([&] { return Enter(api, args, replacement); });
  }
  if (step == nullptr) return nullptr;
  call_place.place = step->call->wanted ? Place::kRecorded : Place::kIgnored;
  call_place.fresh = false;
  return step;
}

OptimizerRecorder::Step* OptimizerRecorder::Enter(const OptimizerApi& api, const CallArgs& args,
                                                  Replacement* replacement) {
  PyObject* const self = args.count > 0 ? args.positional[0] : nullptr;
  auto step = std::make_unique<Step>();
  step->api = &api;
  std::string name = api.name;
  if (api.role == OptimizerApi::kStep) {
    if (self == nullptr) return nullptr;
    step->optimizer = PyRef::Borrow(self);
    std::string_view type = Py_TYPE(self)->tp_name;
    name = fmt::format("{}.step", type.substr(type.rfind('.') + 1));
  } else if (api.role != OptimizerApi::kClip) {
    // A GradScaler that is not enabled does nothing.
    if (self == nullptr) return nullptr;
    const PyRef enabled = Attribute(self, "_enabled");
    if (enabled && PyObject_IsTrue(enabled.get()) == 0) return nullptr;
    step->self = PyRef::Borrow(self);
    if (api.role != OptimizerApi::kScalerUpdate)
      step->optimizer = PyRef::Borrow(Argument(args, 1, "optimizer"));
  }
  if (!Resume()) return nullptr;
  Begin(step.get(), name);
  if (api.role == OptimizerApi::kStep) {
    PyObject* const closure = Argument(args, 1, "closure");
    if (closure != nullptr && PyCallable_Check(closure)) {
      replacement->argument = closure;
      replacement->with = OptimizerCalls::StandInFor(closure);
      step->waits_for_closure = true;
    }
  }
  step->arguments = Dict();
  if (api.role == OptimizerApi::kClip) {
    step->parameters = ParametersIn(Argument(args, 0, api.arguments[0]), replacement);
    for (size_t i = 1; i < api.arguments.size(); ++i) {
      PyObject* const value = Argument(args, static_cast<Py_ssize_t>(i), api.arguments[i]);
      const bool is_plain = api.arguments[i] != "foreach";
      Set(step->arguments, is_plain ? api.arguments[i] : "implementation",
          is_plain ? PyRef::Borrow(value) : ImplementationOf(nullptr, value));
    }
  } else if (api.role == OptimizerApi::kScalerUpdate) {
    Set(step->arguments, "new_scale", PyRef::Borrow(Argument(args, 1, "new_scale")));
  } else if (step->optimizer && api.role != OptimizerApi::kScalerStep) {
    step->parameters = ParametersOf(step->optimizer.get());
  }
  if (!step->waits_for_closure) WriteInputs(step.get());
  return step.release();
}

bool OptimizerRecorder::EnterCell(PyObject* optimizer, PyObject* gradients) {
  static const OptimizerApi* const api =
      new OptimizerApi;  // never destroyed, as those of functions
  if (!recording_->optimizers_wanted || (!recording_->session->collecting() && !stopped_) ||
      call_place.compilers > 0 || listed_depth > 0)
    return false;
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  return recording_->Guarded([&] {
    if (!Resume()) return false;
    auto step = std::make_unique<Step>();
    step->api = api;
    step->optimizer = PyRef::Borrow(optimizer);
    step->gradients = PyRef::Borrow(gradients);
    std::string_view type = Py_TYPE(optimizer)->tp_name;
    Begin(step.get(), fmt::format("{}.step", type.substr(type.rfind('.') + 1)));
    WriteInputs(step.get());
    cells_.push_back(std::move(step));
    ++listed_depth;
    return true;
  });
}

void OptimizerRecorder::LeaveCell(std::string_view exception) {
  if (cells_.empty()) return;
  --listed_depth;
  const std::unique_ptr<Step> step = std::move(cells_.back());
  cells_.pop_back();
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  recording_->Guarded([&] { Leave(step.get(), exception.empty() ? Py_None : nullptr, exception); });
}

void OptimizerRecorder::Begin(Step* step, const std::string& name) {
  const std::string stem = fmt::format("Optimizer.{}.", name);
  step->call = calls_->Begin(stem, recording_->session->calls().Next(recording_->counters.Of(stem)),
                             /*is_module=*/false);
  step->call->wants_backward = false;
  if (!step->call->wanted) ++recording_->coverage.apis.ignored;
  calls_->NoteStack(step->call.get());
}

PyRef OptimizerRecorder::Inputs(const Step& step) {
  if (step.gradients) return CellOptimizerInputs(step.optimizer.get(), step.gradients.get());
  PyRef dict = step.arguments;
  switch (step.api->role) {
    case OptimizerApi::kStep:
      Set(dict, "param_groups", HyperParameters(step.optimizer.get()));
      // Of an optimizer that divides by the scale itself.
      for (const char* name : {"grad_scale", "found_inf"})
        Set(dict, name, Attribute(step.optimizer.get(), name));
      Set(dict, "gradients", Gradients(step.parameters));
      Set(dict, "weights", Weights(step.parameters));
      Set(dict, "state", State(step.optimizer.get(), step.parameters));
      break;
    case OptimizerApi::kClip:
      Set(dict, "gradients", Gradients(step.parameters));
      break;
    case OptimizerApi::kUnscale:
      Set(dict, "scale", Attribute(step.self.get(), "_scale"));
      Set(dict, "gradients", Gradients(step.parameters));
      break;
    case OptimizerApi::kScalerStep:
      Set(dict, "scale", Attribute(step.self.get(), "_scale"));
      break;
    case OptimizerApi::kScalerUpdate:
      for (const char* name : {"growth_factor", "backoff_factor", "growth_interval"})
        Set(dict, name, Attribute(step.self.get(), fmt::format("_{}", name).c_str()));
      Set(dict, "scale", Attribute(step.self.get(), "_scale"));
      Set(dict, "growth_tracker", Attribute(step.self.get(), "_growth_tracker"));
      Set(dict, "found_inf", FoundInfOfAll(step.self.get()));
      break;
    default:
      break;
  }
  return dict;
}

PyRef OptimizerRecorder::Outputs(const Step& step, PyObject* result) {
  if (step.gradients) return CellOptimizerOutputs(step.optimizer.get());
  PyRef dict = Dict();
  switch (step.api->role) {
    case OptimizerApi::kStep:
      Set(dict, "weights", Weights(step.parameters));
      Set(dict, "state", State(step.optimizer.get(), step.parameters));
      break;
    case OptimizerApi::kClip:
      if (result != Py_None) Set(dict, "total_norm", PyRef::Borrow(result));
      Set(dict, "gradients", Gradients(step.parameters));
      break;
    case OptimizerApi::kUnscale:
      Set(dict, "gradients", Gradients(step.parameters));
      [[fallthrough]];
    case OptimizerApi::kScalerStep:
      if (step.optimizer)
        Set(dict, "found_inf", FoundInf(ScalerState(step.self.get(), step.optimizer.get()).get()));
      break;
    case OptimizerApi::kScalerUpdate:
      Set(dict, "scale", Attribute(step.self.get(), "_scale"));
      Set(dict, "growth_tracker", Attribute(step.self.get(), "_growth_tracker"));
      break;
    default:
      break;
  }
  return dict;
}

void OptimizerRecorder::WriteInputs(Step* step) {
  const PyRef inputs = Inputs(*step);
  step->has_inputs = true;
  (void)calls_->WriteInputs(step->call.get(), {.dict = inputs.get()});
}

void OptimizerRecorder::AfterClosure(void* token) {
  Step* const step = static_cast<Step*>(token);
  if (step->has_inputs) return;
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  recording_->Guarded([&] {
    if (recording_->session->collecting()) WriteInputs(step);
  });
}

void OptimizerRecorder::LeaveOptimizer(void* token, PyObject* result) {
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  const std::unique_ptr<Step> step(static_cast<Step*>(token));
  recording_->Guarded([&] { Leave(step.get(), result, exception); });
}

void OptimizerRecorder::Leave(Step* step, PyObject* result, std::string_view exception) {
  if (result != nullptr) {
    const PyRef outputs = Outputs(*step, result);
    calls_->WriteOutput(step->call.get(), outputs.get(), nullptr);
  } else {
    step->call->entry.exception = exception;
  }
  // A closure may have called stop().
  const bool again = !recording_->session->collecting() && stopped_ && open_();
  calls_->Finish(step->call.get());
  calls_->Recycle(std::move(step->call));
  const bool is_last = resumed_ > 0 && --resumed_ == 0;
  if ((is_last || again) && resumed_ == 0 && stopped_) close_();
}

}  // namespace msprobe::capture
