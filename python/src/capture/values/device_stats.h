// Deferred statistics: those of tensors that lie on a device. They are computed there by operations
// of the framework, stay there, and are fetched for many tensors in one transfer. Nothing waits for
// the device before that. (A kernel of our own for a device would replace the operations in
// device_stats.cc.)
//
//   int64_t ticket = device.Add(tensor, DType::kFloat32);    // -1: the device cannot measure it
//   session.ResolveDeferredStats(device.Fetch());            // pairs of ticket and statistics
#pragma once

#include <Python.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"
#include "engine/kernels/stats.h"

namespace msprobe::capture {

class DeviceStats {
 public:
  // Number of pending tensors from which on a transfer should be made.
  static constexpr size_t kMany = 16384;

  // Whether tensors of the host are measured like this as well (MSPROBE_STATISTICS=framework).
  static bool TakesHost();

  // Never leaves a Python error set.
  int64_t Add(PyObject* tensor, DType dtype);
  bool many_pending() const { return pending_.size() >= kMany; }
  // The statistics of all tensors added since the last call; those that could not be fetched are
  // missing.
  std::vector<std::pair<int64_t, kernels::Stats>> Fetch();

 private:
  struct Pending {
    int64_t ticket, count;
    long device;   // the framework's number, -1: the host
    PyRef values;  // float64: max, min, mean, norm; NaN, +inf, -inf, zero; int_max, int_min (bits)
  };

  std::vector<Pending> pending_;
  int64_t next_ticket_ = 0;
};

}  // namespace msprobe::capture
