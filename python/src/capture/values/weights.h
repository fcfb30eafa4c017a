// weights.json: one fingerprint for each parameter and buffer that a run began with, so that a
// comparison can say whether two runs began from the same weights.
//
//   WeightsText text;
//   text.Add("0.", model);                     // "0." before each name: first of a list of models
//   WriteFileAtomically(path, text.Finish());
#pragma once

#include <Python.h>

#include <string>
#include <string_view>

namespace msprobe::capture {

class WeightsText {
 public:
  // Every parameter and buffer of `model`, a torch.nn.Module or mindspore.nn.Cell, once. Never leaves a Python error
  // set.
  void Add(std::string_view prefix, PyObject* model);
  std::string Finish() { return text_ + "\n}\n"; }

 private:
  void AddNamed(std::string_view prefix, PyObject* model, const char* method);

  std::string text_ = "{";
};

}  // namespace msprobe::capture
