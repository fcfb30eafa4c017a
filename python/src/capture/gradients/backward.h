// Gradients of one call's outputs and inputs, without a change of the graph: no node is added, and
// no tensor is held alive.
//
// Before the call, the edge of each input that requires grad is noted: (the node that made it,
// output number), or the tensor itself if it is a leaf of PyTorch's graph. After the call, the
// graph is walked from the outputs' nodes down to those edges. The walk never goes past nodes that
// are older than the call. A pre-hook on an output's node sees the gradient of that output. A hook
// on a node that has an input's edge sees a share of the gradient of that input; the shares are
// added up.
//
// Where a hook on a node is expensive (Framework::cheap_tensor_hooks), all calls share one hook on
// a node, and an output's gradient comes from a hook on the tensor itself, if it is a node's only
// one.
//
// Example: a module computes y = relu(x) + x. A pre-hook on AddBackward sees the gradient of y. x
// has two edges: a hook on AddBackward sees one share of its gradient, a hook on ReluBackward the
// other.
//
//   InputEdges edges(writer.tensors());                      // before the call
//   ArmBackward(edges, outputs, &sink, dump, name, parent);  // after the call
//   // During backward(): sink.Compose for each gradient, at the end sink.Complete(name, ...).
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/devices/device_reader.h"
#include "capture/python/py_ref.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

// What is recorded of one gradient; null: nothing.
using Gradient = std::unique_ptr<TensorValue>;

// Takes the gradients of armed calls.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Whether gradients of calls that were armed in `dump` are still recorded: collection is on, and
  // the same dump is written.
  virtual bool Accepts(int64_t dump) const = 0;
  // Called when gradients have arrived, before they are measured.
  virtual void OnArrival() {}
  // Reads gradients that lie on a device; null: they are read at once.
  virtual DeviceReader* reader() { return nullptr; }
  // Measures one gradient; null: it is not recorded. `is_input`: it is the gradient of an output of
  // the forward call, and so an input of the backward call. Never leaves a Python error set.
  virtual Gradient Compose(const std::string& name, bool is_input, size_t index,
                           PyObject* gradient) = 0;
  // Called after a node's gradients were composed. Their tensors must not be kept any longer, since
  // autograd may now add to them in place.
  virtual void OnNodeDone(const std::string& name) = 0;
  // Called when no further gradient of the call will come; null where none came.
  virtual void Complete(const std::string& name, const std::string& parent,
                        std::vector<Gradient> inputs, std::vector<Gradient> outputs) = 0;
  // Called when a hook has failed.
  virtual void Fault(const char* what) noexcept = 0;
};

class InputEdges {
 public:
  InputEdges() = default;
  // `tensors` are borrowed and must live until ArmBackward.
  explicit InputEdges(const std::vector<PyObject*>& tensors);

 private:
  friend class GraphWalk;
  friend bool ArmBackward(const InputEdges&, const std::vector<PyObject*>&, GradientSink*, int64_t,
                          std::string, std::string);
  struct Edge {
    PyRef node;         // Framework::GradNode; null for a leaf of PyTorch
    uintptr_t key = 0;  // of the node
    PyObject* leaf = nullptr;
    int64_t number = 0;
    size_t slot;  // position among the call's tensors
  };
  std::vector<Edge> edges_;
  size_t slots_ = 0;             // number of the call's tensors
  uint64_t first_sequence_ = 0;  // nodes that the call makes have this number or a higher one
};

// Returns false when no gradient will come, because no output requires grad. Never leaves a Python
// error set.
bool ArmBackward(const InputEdges& edges, const std::vector<PyObject*>& outputs, GradientSink* sink,
                 int64_t dump, std::string name, std::string parent);

// At stop: completes all calls of which some gradients have come, in the order of their first
// gradient, and removes the hooks on tensors.
void FlushBackward();

// At the end of the process. A device runs the backward pass in a thread of its own, which frees
// the graph, our hooks, and what PyTorch keeps of the pass (a context of Python) after backward()
// has returned. For that it needs the GIL, and from a finalized interpreter it does not come back:
// PyTorch ends the process with abort(), with our hooks and without. So the threads of devices get
// the GIL until they sleep, for two seconds at most.
void AwaitBackwardThreads();

// While on, hooks are registered the fast way (node_hooks.h). To be on while calls are armed.
void WatchBackward(bool on);

// Prepares the Python type of the hooks; once, at import.
bool InitBackward();

}  // namespace msprobe::capture
