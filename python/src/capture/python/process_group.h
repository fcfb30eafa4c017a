// Arguments of torch.distributed that are not tensors: process groups, reductions, works, and the
// parts of a batched exchange.
#pragma once

#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace msprobe::capture {

// torch.distributed's classes; each is false where PyTorch was built without it.
bool IsProcessGroup(PyObject* object);
bool IsReduceOp(PyObject* object);
bool IsPointToPoint(PyObject* object);  // P2POp
bool IsWork(PyObject* object);

// The ranks of a group as Python prints the list, and the checksum of that text, by which dumps
// name a group: "[0, 1]", "77849d8c". All members are empty when the ranks are not known.
struct GroupNames {
  std::string ranks, id;
  std::vector<int64_t> members;  // the same ranks
};
GroupNames NamesOfGroup(PyObject* group);

// The number of ranks of the run in which this process has `rank`: by torch.distributed once its
// group is made, before that and under MindSpore by the variables of the launcher. 0: not known.
int RanksOfRun(std::optional<int> rank);

// "RedOpType.SUM". A reduction with a factor would print its address, and is named "ReduceOp".
std::string NameOfReduceOp(PyObject* op);

}  // namespace msprobe::capture
