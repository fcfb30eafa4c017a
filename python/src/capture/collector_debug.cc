// Level debug: single values that the script itself names, and their gradients.
#include <fmt/format.h>

#include "capture/collector.h"
#include "capture/torch_api.h"
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
  std::shared_ptr<SavedGradients> saved;
  size_t index;
};

void Release(const PyRef& handle) {
  if (!handle) return;
  const PyRef done = PyRef::Steal(PyObject_CallMethod(handle.get(), "remove", nullptr));
  ClearError();
}

}  // namespace

void Collector::Save(PyObject* variable, PyObject* name, bool with_gradients,
                     std::optional<int> rank) {
  static bool said = false;
  if (session_->config().level != Level::kDebug) {
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
    ++coverage_.refused_saves;
    return;
  }
  const Result<bool> started = StartSession(rank);
  if (!started.ok() || !*started) return;  // said where it happened; not wanted
  const std::string text(Utf8(name));
  const int64_t number = session_->NextCall(counters_.Of("save " + text));
  EntryBuilder builder;
  builder.BeginValue(fmt::format("{}.{}.debug", text, number));
  ValueOptions options = options_;
  options.device = nullptr;  // written at once, wherever the tensor is
  ValueWriter writer(&builder, options, StyleOf(builder.name(), /*is_output=*/true));
  writer.Value(variable);
  const std::string entry(builder.FinishValue());
  session_->Record({.entry = entry, .name = builder.name()});
  ++coverage_.saves;
  if (!with_gradients) return;

  auto saved = std::make_shared<SavedGradients>();
  std::vector<PyObject*> tensors;
  Shape(variable, "", saved.get(), &tensors);
  if (tensors.empty()) return;
  saved->name = fmt::format("{}_grad.{}.debug", text, number);
  saved->step = session_->step();
  saved->rank = rank;
  saved->missing = tensors.size();
  static PyMethodDef method = {
      kHookName,
      [](PyObject* self, PyObject* gradient) -> PyObject* {
        auto* hook = static_cast<Hook*>(PyCapsule_GetPointer(self, kHookName));
        if (hook != nullptr)
          Collector::Get().Guarded(
              [&] { Collector::Get().SaveGradient(hook->saved.get(), hook->index, gradient); });
        ClearError();
        Py_RETURN_NONE;
      },
      METH_O, nullptr};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PyRef capsule =
        PyRef::Steal(PyCapsule_New(new Hook{saved, i}, kHookName, [](PyObject* object) {
          delete static_cast<Hook*>(PyCapsule_GetPointer(object, kHookName));
        }));
    const PyRef hook = PyRef::Steal(PyCFunction_New(&method, capsule.get()));
    saved->holes[i].handle =
        PyRef::Steal(PyObject_CallMethod(tensors[i], "register_hook", "O", hook.get()));
    ClearError();
  }
  saves_.push_back(std::move(saved));
  ++coverage_.expected_gradients;
}

void Collector::SaveGradient(SavedGradients* saved, size_t index, PyObject* gradient) {
  SavedGradients::Hole& hole = saved->holes[index];
  if (!hole.json.empty() || saved->step != session_->step()) return;
  const KeepError keep;
  const Interposer::Pause pause;
  const Result<bool> started = StartSession(saved->rank);  // stop() may have been called since
  if (!started.ok() || !*started) return;
  std::string file;
  if (Stores(saved->name)) file = SafeFileName(saved->name + hole.path, ".pt");
  ValueOptions options = options_;
  options.device = nullptr;
  AppendTensorJson(&hole.json, gradient, options, StyleOf(saved->name, true), file);
  Release(hole.handle);
  if (--saved->missing > 0) return;
  WriteSaved(saved);
  ++coverage_.gradients;
  saves_.remove_if([&](const auto& waiting) { return waiting.get() == saved; });
}

void Collector::WriteSaved(SavedGradients* saved) {
  std::string entry;
  AppendJsonString(&entry, saved->name);
  entry += ": " + saved->pieces[0];
  for (size_t i = 0; i < saved->holes.size(); ++i) {
    entry += saved->holes[i].json.empty() ? "null" : saved->holes[i].json;
    entry += saved->pieces[i + 1];
  }
  session_->Record({.entry = entry, .name = saved->name});
}

void Collector::FlushSaves() {
  const KeepError keep;
  while (!saves_.empty()) {
    const std::shared_ptr<SavedGradients> saved = std::move(saves_.front());
    saves_.pop_front();
    for (const SavedGradients::Hole& hole : saved->holes) Release(hole.handle);
    const Result<bool> started = StartSession(saved->rank);
    if (started.ok() && *started) WriteSaved(saved.get());
  }
}

}  // namespace msprobe::capture
