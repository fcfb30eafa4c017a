// Who takes part in a call of torch.distributed: its group, and what this process is in it.
//
//   const CollectiveSignature signature("broadcast", function);     // names of its parameters
//   CollectiveGroup group = DescribeGroup(signature, args, result);
//   // {"ranks": [0, 1], "id": "77849d8c", "rank": 1, "role": "receiver", "from": 0}
#pragma once

#include <Python.h>

#include <array>
#include <string>
#include <string_view>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

// Where a function takes what tells its group and its partner.
class CollectiveSignature {
 public:
  enum Parameter { kGroup, kSource, kDestination, kGroupSource, kGroupDestination, kParameters };

  // `function` is a Python function, perhaps wrapped (__wrapped__); of anything else nothing is
  // known.
  CollectiveSignature(std::string name, PyObject* function);
  const std::string& name() const { return name_; }
  bool Has(Parameter parameter) const { return places_[parameter] >= 0; }
  // Borrowed; null when the call does not say it, or says None.
  PyObject* Argument(Parameter parameter, const CallArgs& args) const;

 private:
  std::string name_;
  std::array<Py_ssize_t, kParameters> places_;
};

// The process group a call runs in, the default one when it names none. Null when there is none, or
// this process is not in it.
PyRef GroupOf(const CollectiveSignature& signature, const CallArgs& args);

// Who takes part in a call; no ranks when there is no such group. `result` is what the call returned (of recv: the rank it came from), null when it raised. Never communicates.
CollectiveGroup DescribeGroup(const CollectiveSignature& signature, const CallArgs& args,
                              PyObject* result);

// Says once what helps, where the error that a collective raised has a code that is known for it.
void HintAtFailure(std::string_view error);

// Whether calls of `group` are being put together by torch.distributed._coalescing_manager.
bool IsCoalescing(PyObject* group);

}  // namespace msprobe::capture
