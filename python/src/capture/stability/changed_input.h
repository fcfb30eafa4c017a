// The tensors that an operation gets when it runs a second time, as the configured perturbation
// says. No tensor of the program is changed.
//
//   ChangedInput input(rules.perturbation);
//   PyRef result = held.Run([&](PyObject* tensor) { return input.Of(tensor); });
//   if (!input.applied()) Skip(input.why_not());
#pragma once

#include <Python.h>

#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"
#include "engine/dump/config/free_benchmark_rules.h"
#include "engine/tensor/dtype.h"

namespace msprobe::capture {

class ChangedInput {
 public:
  explicit ChangedInput(dump::Perturbation perturbation) : perturbation_(perturbation) {}

  // The changed tensor, without a gradient. It is a copy, because some operations write into
  // tensors without saying so: batch_norm changes its running statistics. `may_share`: a tensor
  // that is not changed shares the memory. Null, with no error set: it could not be made.
  PyRef Of(PyObject* tensor, bool may_share = false);
  // Whether what was asked so far makes the second run different from the first: another number,
  // dtype or device. Always true where nothing is to be changed.
  bool applied() const { return applied_ || perturbation_ == dump::Perturbation::kNoChange; }
  Message why_not() const;
  dump::Perturbation perturbation() const { return perturbation_; }
  // Of the tensor whose elements were changed.
  DType dtype() const { return dtype_; }
  bool other_precision() const {
    return other_precision_;
  }  // some tensor has another dtype or device

 private:
  PyRef Noisy(PyObject* tensor);
  PyRef Converted(PyObject* tensor, DType dtype, bool on_host, bool may_share);

  dump::Perturbation perturbation_;
  DType dtype_ = DType::kFloat32;
  bool seen_float_ = false, applied_ = false, other_precision_ = false;
};

}  // namespace msprobe::capture
