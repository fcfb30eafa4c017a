// weights.json: the statistics and the fingerprint of each parameter and buffer with which a step
// begins, so that a comparison can say with which weights two runs began, and whether a wrong
// update lies between two steps.
//
//   WeightsFile weights;
//   // "0." before each name: first of a list of models
//   weights.Read("0.", model, {});
//   weights.Resolve(device.Arrived());            // numbers of a device, which come later
//   if (!weights.waits()) WriteFileAtomically(path, weights.Take());
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/values/value_writer.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

class WeightsFile {
 public:
  // Every parameter and buffer of `model`, a torch.nn.Module or mindspore.nn.Cell, once. Never
  // leaves a Python error set.
  void Read(std::string_view prefix, PyObject* model, const ValueOptions& options);
  void Resolve(const std::vector<DeferredNumbers>& arrived);
  bool empty() const { return weights_.empty(); }
  // Whether numbers of a device are still to come.
  bool waits() const { return !waiting_.empty(); }
  // The text of the file. Forgets what was read.
  std::string Take();

 private:
  void ReadNamed(std::string_view prefix, PyObject* model, const char* method,
                 const ValueOptions& options);

  std::vector<std::pair<std::string, TensorValue>> weights_;
  std::unordered_map<int64_t, size_t> waiting_;  // index in weights_, by ticket
};

}  // namespace msprobe::capture
