// Level debug: single values that the script itself names, and their gradients.
#pragma once

#include <Python.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "capture/recording/recording.h"

namespace msprobe::capture {

struct SavedGradients;  // debug_saves.cc

class DebugSaves {
 public:
  // Begins or goes on recording the step; false: it is not wanted. Says what fails.
  using Start = std::function<bool(std::optional<int> rank)>;
  DebugSaves(Recording* recording, Start start) : recording_(recording), start_(std::move(start)) {}

  // An entry of `variable` (a tensor, a number, text, or lists and dictionaries of them), and one
  // of the gradients of its tensors when they have come. Anything else: a warning.
  void Save(PyObject* variable, PyObject* name, bool with_gradients, std::optional<int> rank);
  // What a tensor's hook calls with its gradient. An exception ends collection and goes no further.
  void TakeGradient(SavedGradients* saved, size_t index, PyObject* gradient) noexcept;
  // Writes what has come of gradients that are still waited for.
  void Flush();

 private:
  void OnGradient(SavedGradients* saved, size_t index, PyObject* gradient);
  void Write(SavedGradients* saved);

  Recording* recording_;
  Start start_;
  std::list<std::shared_ptr<SavedGradients>> waiting_;
};

}  // namespace msprobe::capture
