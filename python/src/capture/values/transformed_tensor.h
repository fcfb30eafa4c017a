// Tensors without memory of their own: those that torch.func wraps around others (vmap, grad, jvp),
// and those whose elements nobody can read.
//
//   if (TransformedTensor t = Unwrap(tensor); t.inner)
//     TensorAccess elements(t.inner.get());
//   else
//     Log(LogLevel::kDebug, WhyUnreadable(tensor));   // "meta tensor"
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

struct TransformedTensor {
  PyRef inner;  // the tensor inside all wrappers; null: there is none, or PyTorch cannot say
  // Dimensions of `inner` that vmap batches over, that of the outermost vmap first.
  std::vector<int64_t> batch_dims;
};

// Runs no operation: no level of a transform sees it. Never leaves a Python error set.
TransformedTensor Unwrap(PyObject* tensor);

// Why the elements of a tensor cannot be read, in a few words that are the same in each run.
std::string WhyUnreadable(PyObject* tensor);

}  // namespace msprobe::capture
