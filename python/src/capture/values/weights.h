// weights.json: the statistics and the fingerprint of each parameter and buffer with which a step
// begins, so that a comparison can say with which weights two runs began, and whether a wrong update
// lies between two steps.
//
//   WeightsFile weights;
//   weights.Read("0.", model, nullptr, nullptr);  // "0." before each name: first of a list of models
//   weights.Resolve(device.Fetch());           // statistics of a device, which come later
//   if (!weights.waits()) WriteFileAtomically(path, weights.Take());
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/values/device_stats.h"
#include "capture/values/known_numbers.h"
#include "capture/values/value_writer.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

class WeightsFile {
 public:
  // Every parameter and buffer of `model`, a torch.nn.Module or mindspore.nn.Cell, once. `device`
  // measures the tensors of a device there, without fingerprints; null: they are copied to the host.
  // `known`: keeps their numbers for the calls that use them; null: it does not. Never leaves a Python error set.
  void Read(std::string_view prefix, PyObject* model, DeviceStats* device, KnownNumbers* known);
  void Resolve(const std::vector<std::pair<int64_t, kernels::Stats>>& known);
  bool empty() const { return weights_.empty(); }
  // Whether statistics of a device are still to come.
  bool waits() const;
  // The text of the file. Forgets what was read.
  std::string Take();

 private:
  void ReadNamed(std::string_view prefix, PyObject* model, const char* method,
                 const ValueOptions& options);

  std::vector<std::pair<std::string, TensorValue>> weights_;
};

}  // namespace msprobe::capture
