// What calls of torch.distributed are given beside tensors: groups, reductions, the parts of a
// batched exchange.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

namespace msprobe::capture {

// torch.distributed's classes; each is false where PyTorch was built without it.
bool IsProcessGroup(PyObject* object);
bool IsReduceOp(PyObject* object);
bool IsPointToPoint(PyObject* object);  // P2POp
bool IsWork(PyObject* object);

// The ranks of a group as Python prints the list, and their checksum, by which dumps name a group:
// "[0, 1]", "77849d8c". All are empty when the group does not tell.
struct GroupNames {
  std::string ranks, id;
  std::vector<int64_t> members;  // the same ranks
};
GroupNames NamesOfGroup(PyObject* group);

// "RedOpType.SUM"; a reduction with a factor of its own prints its address and is "ReduceOp".
std::string NameOfReduceOp(PyObject* op);

}  // namespace msprobe::capture
