// Hooks on nodes of the autograd graph, registered without a Python frame.
//
// PyTorch's node.register_hook() asks the Python function _HookMixin._register_hook for a dict and
// a RemovableHandle: 5 us, and objects for the garbage collector. Ours are never removed one by one
// (they die with the graph), so while collecting that function is answered in C++ when the hook is
// ours, and as ever when it is not.
//
//   NodeHooks::Install(&hook_type);
//   const bool added = NodeHooks::Add(node, hook, NodeHooks::kBefore);
//   NodeHooks::Remove();
#pragma once

#include <Python.h>

namespace msprobe::capture {

class NodeHooks {
 public:
  enum When { kBefore, kAfter };  // the node runs

  // Hooks of type `ours` take the short way from now on. Without it, or where PyTorch has no such
  // function, Add works too.
  static void Install(PyTypeObject* ours);
  static void Remove();

  // False when the node takes no hooks; no Python error is left set.
  static bool Add(PyObject* node, PyObject* hook, When when);
};

}  // namespace msprobe::capture
