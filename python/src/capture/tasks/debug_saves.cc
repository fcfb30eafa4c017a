#include "capture/tasks/debug_saves.h"

#include <fmt/format.h>

#include <exception>

#include "capture/calls/interpose.h"
#include "capture/gradients/backward.h"
#include "capture/python/framework.h"
#include "engine/base/log.h"
#include "engine/model/names.h"

namespace msprobe::capture {

// Lists and dictionaries of a saved value, and where its tensors are.
struct Structure {
  enum Kind { kNothing, kGradient, kList, kDict };
  Kind kind = kNothing;
  std::string key;    // in a dictionary
  size_t tensor = 0;  // kGradient: index into SavedGradients::tensors
  std::vector<Structure> parts;
};

// The gradients of one saved value. They are put into an entry of its structure when all have come.
struct SavedGradients {
  struct Waiting {
    std::string path;   // of the tensor in the saved value: ".0.logits"
    Gradient gradient;  // null: it has not come
    PyRef handle;       // handle of the hook, until the gradient has come
  };
  std::string name;
  int64_t dump = 0;
  std::optional<int> rank;
  Structure structure;
  std::vector<Waiting> tensors;
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
  return Framework::Get().IsTensor(value) || PyLong_Check(value) || PyFloat_Check(value) ||
         PyUnicode_Check(value);
}

// Fills the structure of a saved value; `tensors` gets each tensor that has a gradient, in order.
void Describe(PyObject* value, const std::string& path, Structure* structure, SavedGradients* saved,
              std::vector<PyObject*>* tensors) {
  if (PyDict_Check(value)) {
    structure->kind = Structure::kDict;
    PyObject *key, *item;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item);) {
      Structure& part = structure->parts.emplace_back();
      part.key = Utf8(key);
      Describe(item, fmt::format("{}.{}", path, part.key), &part, saved, tensors);
    }
  } else if (PyList_Check(value) || PyTuple_Check(value)) {
    structure->kind = Structure::kList;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      Describe(PySequence_Fast_GET_ITEM(value, i), fmt::format("{}.{}", path, i),
               &structure->parts.emplace_back(), saved, tensors);
    }
  } else if (Framework::Get().IsTensor(value) && Framework::Get().RequiresGrad(value)) {
    structure->kind = Structure::kGradient;
    structure->tensor = saved->tensors.size();
    saved->tensors.push_back({.path = path, .gradient = nullptr, .handle = PyRef()});
    tensors->push_back(value);
  }
}

void Fill(const Structure& structure, std::vector<SavedGradients::Waiting>* tensors, Entry* entry) {
  switch (structure.kind) {
    case Structure::kNothing:
      return entry->Null();
    case Structure::kGradient: {
      Gradient& gradient = (*tensors)[structure.tensor].gradient;
      return gradient == nullptr ? entry->Null() : entry->AddTensor(std::move(*gradient));
    }
    case Structure::kList:
    case Structure::kDict:
      structure.kind == Structure::kList ? entry->BeginList() : entry->BeginDict();
      for (const Structure& part : structure.parts) {
        if (structure.kind == Structure::kDict) entry->Key(part.key);
        Fill(part, tensors, entry);
      }
      return entry->EndContainer();
  }
}

// The data of a tensor's hook: the saved value, and the index of the tensor in it.
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
      Log(LogLevel::kWarning, "save() records under level debug only: nothing is saved"_t);
    return;
  }
  const KeepError keep;
  const Interposer::Pause pause;
  if (!PyUnicode_Check(name) || !CanSave(variable)) {
    Log(LogLevel::kWarning,
        "save({}): expected a tensor, a number, text, or lists and dictionaries (with "
        "text as keys) of them, and text as name; found {}; nothing is saved"_t(
            StrOf(name), PyUnicode_Check(name) ? TypeName((PyObject*)Py_TYPE(variable))
                                               : TypeName((PyObject*)Py_TYPE(name))));
    ++recording_->coverage.refused_saves;
    return;
  }
  if (!start_(rank)) return;
  const std::string text(Utf8(name));
  const int64_t number = recording_->session->calls().Next(recording_->counters.Of("save " + text));
  Entry entry;
  entry.BeginValue(fmt::format("{}.{}.debug", text, number));
  ValueOptions options = recording_->options;
  options.device = nullptr;  // statistics are computed at once, also for tensors of a device
  ValueWriter writer(&entry, options, recording_->StyleOf(entry.name(), /*is_output=*/true));
  writer.Value(variable);
  recording_->session->Record({.entry = &entry, .name = entry.name()});
  ++recording_->coverage.saves;
  if (!with_gradients) return;

  auto saved = std::make_shared<SavedGradients>();
  std::vector<PyObject*> tensors;
  Describe(variable, "", &saved->structure, saved.get(), &tensors);
  if (tensors.empty()) return;
  saved->name = fmt::format("{}_grad.{}.debug", text, number);
  saved->dump = recording_->session->dump();
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
    saved->tensors[i].handle =
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
    recording_->Fault(error.what());
  }
}

void DebugSaves::OnGradient(SavedGradients* saved, size_t index, PyObject* gradient) {
  SavedGradients::Waiting& waiting = saved->tensors[index];
  if (waiting.gradient != nullptr || saved->dump != recording_->session->dump()) return;
  const KeepError keep;
  const Interposer::Pause pause;
  if (!start_(saved->rank)) return;  // starts again, in case stop() was called since
  std::string file;
  if (recording_->Stores(saved->name))
    file = SafeFileName(saved->name + waiting.path, Framework::Get().tensor_suffix);
  ValueOptions options = recording_->options;
  options.device = nullptr;
  waiting.gradient = std::make_unique<TensorValue>(
      RecordTensor(gradient, options, recording_->StyleOf(saved->name, /*is_output=*/true), file));
  if (Framework::Get().is_torch()) {
    Release(waiting.handle);
  } else {
    spent_.push_back(std::move(waiting.handle));  // MindSpore crashes when a hook removes itself
  }
  if (--saved->missing > 0) return;
  Write(saved);
  ++recording_->coverage.gradients;
  waiting_.remove_if([&](const auto& other) { return other.get() == saved; });
}

void DebugSaves::Write(SavedGradients* saved) {
  Entry entry;
  entry.BeginValue(saved->name);
  Fill(saved->structure, &saved->tensors, &entry);
  recording_->session->Record({.entry = &entry, .name = saved->name});
}

void DebugSaves::Flush() {
  const KeepError keep;
  for (const PyRef& handle : spent_) Release(handle);
  spent_.clear();
  while (!waiting_.empty()) {
    const std::shared_ptr<SavedGradients> saved = std::move(waiting_.front());
    waiting_.pop_front();
    for (const SavedGradients::Waiting& waiting : saved->tensors) Release(waiting.handle);
    if (start_(saved->rank)) Write(saved.get());
  }
}

}  // namespace msprobe::capture
