#include "capture/tasks/debug_saves.h"

#include <fmt/format.h>

#include <exception>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

namespace msprobe::capture {

// The gradients of one saved value: its shape with a hole for each tensor that gets one.
struct SavedGradients {
  struct Hole {
    std::string path;  // ".0.logits"
    std::string json;  // "": has not come
    PyRef handle;      // of the hook, until it has
  };
  std::string name;
  int64_t step = 0;
  std::optional<int> rank;
  std::vector<std::string> pieces{""};  // what stands before, between and behind the holes
  std::vector<Hole> holes;
  size_t missing = 0;
};

namespace {

constexpr int kMaxDepth = 400;
constexpr char kHookName[] = "msprobe.saved_gradient";

// Whether `value` is of the kinds that can be saved.
bool CanSave(PyObject* value, int depth = 0) {
  if (depth > kMaxDepth) return false;
  if (PyDict_Check(value)) {
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item);) {
      if (!PyUnicode_Check(key) || !CanSave(item, depth + 1)) return false;
    }
    return true;
  }
  if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      if (!CanSave(PySequence_Fast_GET_ITEM(value, i), depth + 1)) return false;
    }
    return true;
  }
  return TorchApi::Get().IsTensor(value) || PyLong_Check(value) || PyFloat_Check(value) ||
         PyUnicode_Check(value);
}

// Makes the holes; `tensors` gets the tensor of each.
void Shape(PyObject* value, const std::string& path, SavedGradients* saved,
           std::vector<PyObject*>* tensors) {
  if (PyDict_Check(value)) {
    saved->pieces.back() += '{';
    PyObject *key, *item;
    bool first = true;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item); first = false) {
      if (!first) saved->pieces.back() += ", ";
      AppendJsonString(&saved->pieces.back(), Utf8(key));
      saved->pieces.back() += ": ";
      Shape(item, fmt::format("{}.{}", path, Utf8(key)), saved, tensors);
    }
    saved->pieces.back() += '}';
  } else if (PyList_Check(value) || PyTuple_Check(value)) {
    saved->pieces.back() += '[';
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      if (i > 0) saved->pieces.back() += ", ";
      Shape(PySequence_Fast_GET_ITEM(value, i), fmt::format("{}.{}", path, i), saved, tensors);
    }
    saved->pieces.back() += ']';
  } else if (TorchApi::Get().IsTensor(value) && TorchApi::Get().RequiresGrad(value)) {
    saved->holes.push_back({.path = path});
    saved->pieces.emplace_back();
    tensors->push_back(value);
  } else {
    saved->pieces.back() += "null";
  }
}

// What a tensor's hook knows: which hole of what.
struct Hook {
  DebugSaves* saves;
  std::shared_ptr<SavedGradients> saved;
  size_t index;
};

void Release(const PyRef& handle) {
  if (!handle) return;
  const PyRef done = PyRef::Steal(PyObject_CallMethod(handle.get(), "remove", nullptr));
  ClearError();
}

}  // namespace

void DebugSaves::Save(PyObject* variable, PyObject* name, bool with_gradients,
                      std::optional<int> rank) {
  static bool said = false;
  if (recording_->session->config().level != Level::kDebug) {
    if (!std::exchange(said, true))
      Log(LogLevel::kWarning, "save() records under level debug only: nothing is saved");
    return;
  }
  const KeepError keep;
  const Interposer::Pause pause;
  if (!PyUnicode_Check(name) || !CanSave(variable)) {
    Log(LogLevel::kWarning,
        fmt::format("save({}): expected a tensor, a number, text, or lists and dictionaries (with "
                    "text as keys) of them, and text as name; found {}; nothing is saved",
                    StrOf(name),
                    PyUnicode_Check(name) ? TypeName((PyObject*)Py_TYPE(variable))
                                          : TypeName((PyObject*)Py_TYPE(name))));
    ++recording_->coverage.refused_saves;
    return;
  }
  if (!start_(rank)) return;
  const std::string text(Utf8(name));
  const int64_t number = recording_->session->NextCall(recording_->counters.Of("save " + text));
  dump::EntryBuilder builder;
  builder.BeginValue(fmt::format("{}.{}.debug", text, number));
  ValueOptions options = recording_->options;
  options.device = nullptr;  // written at once, wherever the tensor is
  ValueWriter writer(&builder, options, recording_->StyleOf(builder.name(), /*is_output=*/true));
  writer.Value(variable);
  const std::string entry(builder.FinishValue());
  recording_->session->Record({.entry = entry, .name = builder.name()});
  ++recording_->coverage.saves;
  if (!with_gradients) return;

  auto saved = std::make_shared<SavedGradients>();
  std::vector<PyObject*> tensors;
  Shape(variable, "", saved.get(), &tensors);
  if (tensors.empty()) return;
  saved->name = fmt::format("{}_grad.{}.debug", text, number);
  saved->step = recording_->session->step();
  saved->rank = rank;
  saved->missing = tensors.size();
  static PyMethodDef method = {
      kHookName,
      [](PyObject* self, PyObject* gradient) -> PyObject* {
        auto* hook = static_cast<Hook*>(PyCapsule_GetPointer(self, kHookName));
        if (hook != nullptr) hook->saves->TakeGradient(hook->saved.get(), hook->index, gradient);
        ClearError();
        Py_RETURN_NONE;
      },
      METH_O, nullptr};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PyRef capsule =
        PyRef::Steal(PyCapsule_New(new Hook{this, saved, i}, kHookName, [](PyObject* object) {
          delete static_cast<Hook*>(PyCapsule_GetPointer(object, kHookName));
        }));
    const PyRef hook = PyRef::Steal(PyCFunction_New(&method, capsule.get()));
    saved->holes[i].handle =
        PyRef::Steal(PyObject_CallMethod(tensors[i], "register_hook", "O", hook.get()));
    ClearError();
  }
  waiting_.push_back(std::move(saved));
  ++recording_->coverage.expected_gradients;
}

void DebugSaves::TakeGradient(SavedGradients* saved, size_t index, PyObject* gradient) noexcept {
  try {
    OnGradient(saved, index, gradient);
  } catch (const std::exception& error) {
    recording_->fault(error.what());
  }
}

void DebugSaves::OnGradient(SavedGradients* saved, size_t index, PyObject* gradient) {
  SavedGradients::Hole& hole = saved->holes[index];
  if (!hole.json.empty() || saved->step != recording_->session->step()) return;
  const KeepError keep;
  const Interposer::Pause pause;
  if (!start_(saved->rank)) return;  // stop() may have been called since
  std::string file;
  if (recording_->Stores(saved->name)) file = dump::SafeFileName(saved->name + hole.path, ".pt");
  ValueOptions options = recording_->options;
  options.device = nullptr;
  AppendTensorJson(&hole.json, gradient, options, recording_->StyleOf(saved->name, true), file);
  Release(hole.handle);
  if (--saved->missing > 0) return;
  Write(saved);
  ++recording_->coverage.gradients;
  waiting_.remove_if([&](const auto& waiting) { return waiting.get() == saved; });
}

void DebugSaves::Write(SavedGradients* saved) {
  std::string entry;
  AppendJsonString(&entry, saved->name);
  entry += ": " + saved->pieces[0];
  for (size_t i = 0; i < saved->holes.size(); ++i) {
    entry += saved->holes[i].json.empty() ? "null" : saved->holes[i].json;
    entry += saved->pieces[i + 1];
  }
  recording_->session->Record({.entry = entry, .name = saved->name});
}

void DebugSaves::Flush() {
  const KeepError keep;
  while (!waiting_.empty()) {
    const std::shared_ptr<SavedGradients> saved = std::move(waiting_.front());
    waiting_.pop_front();
    for (const SavedGradients::Hole& hole : saved->holes) Release(hole.handle);
    if (start_(saved->rank)) Write(saved.get());
  }
}

}  // namespace msprobe::capture
