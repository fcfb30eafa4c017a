// Who takes part in a call of torch.distributed: the ranks of its group, and the role of this
// process.
//
//   const CollectiveSignature signature("broadcast", function);     // names of its parameters
//   CollectiveGroup group = DescribeGroup(signature, args, result);
//   // {"ranks": [0, 1], "id": "77849d8c", "rank": 1, "role": "receiver", "from": 0}
#pragma once

#include <Python.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

// Which parameters of a function name the group and the partner of a call.
class CollectiveSignature {
 public:
  enum Parameter {
    kGroup,
    kSource,
    kDestination,
    kGroupSource,
    kGroupDestination,
    kResult,
    kParameters
  };

  // `function` is a Python function, perhaps wrapped (__wrapped__), or an operator of torch.ops
  // with a schema: a functional collective. Of any other callable the parameters are not known, and
  // Has answers false.
  CollectiveSignature(std::string name, PyObject* function);
  const std::string& name() const { return name_; }
  // It returns tensors that the program waits for by wait_tensor, and writes into none.
  bool is_functional() const { return is_functional_; }
  // The argument that takes the results of a call that is not functional. Borrowed; null: none.
  PyObject* Results(const CallArgs& args) const;
  bool Has(Parameter parameter) const { return places_[parameter] >= 0; }
  // Borrowed; null when the call does not give the argument, or gives None.
  PyObject* Argument(Parameter parameter, const CallArgs& args) const;

 private:
  void Take(std::vector<std::string> names);

  std::string name_;
  bool is_functional_ = false;
  std::array<std::string, kParameters> names_;
  std::array<Py_ssize_t, kParameters> places_;
};

// The process group that a call runs in: the one it names, or the default group. Null when there is
// no group, or this process is not in it.
PyRef GroupOf(const CollectiveSignature& signature, const CallArgs& args);

// Who takes part in a call; without ranks when there is no such group. `result`: the return value
// of the call, null when it raised; recv returns the rank that sent. Never communicates.
CollectiveGroup DescribeGroup(const CollectiveSignature& signature, const CallArgs& args,
                              PyObject* result);

// Logs advice, once, when a collective has raised an error whose code is known (such as EI0006, a
// timeout of HCCL).
void HintAtFailure(std::string_view error);

// Whether a torch.distributed._coalescing_manager of `group` is active.
bool IsCoalescing(PyObject* group);

}  // namespace msprobe::capture
