// Statistics of tensors that lie on a device: computed there by operations of the framework, kept
// there, and fetched for many tensors in one transfer. Nothing waits for the device before that.
// (A kernel of our own for a kind of device takes the place of the operations in Measure.)
//
//   int64_t ticket = device.Add(tensor, DType::kFloat32);    // -1: measure it elsewhere
//   session.ResolveDeferredStats(device.Fetch());                   // (ticket, statistics)
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
  // Pending tensors after which a transfer is due.
  static constexpr size_t kMany = 16384;

  // Whether tensors of the host are measured in this way as well (MSPROBE_STATISTICS=framework).
  static bool TakesHost();

  // Never leaves a Python error set.
  int64_t Add(PyObject* tensor, DType dtype);
  bool many_pending() const { return pending_.size() >= kMany; }
  // Of everything added since the last call. What could not be fetched is missing.
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
