// Hooks on nodes of the autograd graph, registered fast.
//
// PyTorch's node.register_hook() calls the Python function _HookMixin._register_hook, which makes a
// dict and a RemovableHandle. That takes 5 us and leaves objects to the garbage collector. Our
// hooks need no handle: they are never removed one by one, but freed with the graph. So while
// collecting, a function in C++ stands in the place of _register_hook. It does the short work for
// our hooks and calls the original for all others.
//
//   NodeHooks::Install(&hook_type);
//   const bool added = NodeHooks::Add(node, hook, NodeHooks::kBefore);
//   NodeHooks::Remove();
#pragma once

#include <Python.h>

namespace msprobe::capture {

class NodeHooks {
 public:
  enum When { kBefore, kAfter };  // before or after the node runs

  // From now on, hooks of type `ours` are registered the fast way. Add works without it as well,
  // and with a PyTorch that has no such function.
  static void Install(PyTypeObject* ours);
  static void Remove();

  // False when the node accepts no hooks. Never leaves a Python error set.
  static bool Add(PyObject* node, PyObject* hook, When when);
};

}  // namespace msprobe::capture
