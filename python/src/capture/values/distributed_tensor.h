// Tensors that stand for others: a DTensor for the shards of all processes, an
// AsyncCollectiveTensor for a result that may still be on its way. Neither has memory of its own.
// Any operation on them may wait or communicate; what is asked here does not.
//
//   if (IsDTensor(t)) {
//     PyRef shard = LocalShard(t);
//     Layout layout = LayoutOf(t);
//   }
#pragma once

#include <Python.h>

#include <string>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

bool IsDTensor(PyObject* tensor);
// The part that this process holds, which may be an AsyncCollectiveTensor. None when it is not
// known.
PyRef LocalShard(PyObject* dtensor);

// As JSON: "[[0, 1], [2, 3]]", "[{\"Shard\": {\"dim\": 0}}, {\"Replicate\": {}}]", "[8, 16]".
// `global_shape`: of the tensor that all shards are together; "" where it is not known.
struct Layout {
  std::string device_mesh, placements, global_shape;
};
Layout LayoutOf(PyObject* dtensor);

// The sum of the two local shards, when both tensors have the same layout. Null otherwise, because
// the sum would need communication or waiting.
PyRef AddShards(PyObject* a, PyObject* b);

bool IsAsyncTensor(PyObject* tensor);
bool IsWaitedFor(PyObject* async_tensor);
// The tensor inside an AsyncCollectiveTensor.
PyRef AsyncResult(PyObject* async_tensor);

}  // namespace msprobe::capture
