// Level debug: records single values that the script saves by name, and their gradients.
#pragma once

#include <Python.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

struct SavedGradients;  // debug_saves.cc

class DebugSaves {
 public:
  // Begins to record the step, unless that has begun. False: the step is not wanted, or an error
  // was logged.
  using Start = std::function<bool(std::optional<int> rank)>;
  DebugSaves(Recording* recording, Start start) : recording_(recording), start_(std::move(start)) {}

  // Records `variable` (a tensor, a number, text, or lists and dictionaries of them), and, when
  // they have come, the gradients of its tensors. A value of another type is a warning.
  void Save(PyObject* variable, PyObject* name, bool with_gradients, std::optional<int> rank);
  // Called by a tensor's hook with its gradient. Never throws: an exception ends collection.
  void TakeGradient(SavedGradients* saved, size_t index, PyObject* gradient) noexcept;
  // At stop: records the gradients that have come, of values whose other gradients are missing.
  void Flush();

 private:
  void OnGradient(SavedGradients* saved, size_t index, PyObject* gradient);
  void Write(SavedGradients* saved);

  Recording* recording_;
  Start start_;
  std::list<std::shared_ptr<SavedGradients>> waiting_;
  std::vector<PyRef> spent_;  // handles of hooks that Flush removes
};

}  // namespace msprobe::capture
