// The parameters or buffers of a model by their names, as its own method yields them.
//
//   for (const auto& [name, tensor] : NamedTensors(model, "named_parameters"))
//     Watch("0." + name, tensor.get());
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// What iterating over `model.method()` gives: pairs of a name and a tensor, each tensor once.
// Nothing when the model has no such method, and what came before when it raises; no error is left
// set. named_parameters and named_buffers of torch.nn.Module are not called: their generators take
// 3 us a tensor. The modules are walked in the same order instead, as long as no class on the way
// has methods of its own. At most the first `most` of them.
std::vector<std::pair<std::string, PyRef>> NamedTensors(PyObject* model, const char* method,
                                                        size_t most = SIZE_MAX);

}  // namespace msprobe::capture
