// Gradients of one call's outputs and inputs, without touching the graph (no node is added, nothing
// is held alive).
//
// Before the call the edge of each input that requires grad is noted: (grad_fn, output number), or
// the leaf itself. After the call the graph is walked from the outputs' nodes down to those edges,
// never past nodes that are older than the call. A pre-hook on an output's node sees the gradient
// of that output; a hook on a node that owns an input's edge sees the gradient of that input
// (several are added up).
//
//   InputEdges edges(writer.tensors());                       // before
//   // After. The sink hears of the gradients during backward(): Complete(name, ...).
//   ArmBackward(edges, outputs, &sink, step, name, parent);
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/python/py_ref.h"
#include "engine/model/entry.h"

namespace msprobe::capture {

// What is recorded of one gradient; null: nothing.
using Gradient = std::unique_ptr<TensorValue>;

// Who composes and keeps the values.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Whether calls armed in `step` are still of interest: collection goes on and the step is the
  // same.
  virtual bool Accepts(int64_t step) const = 0;
  // What is recorded of one gradient; null: nothing. `is_input`: the gradient of a forward output
  // ("input" of the backward call). Never leaves a Python error set.
  virtual Gradient Compose(const std::string& name, bool is_input, size_t index,
                           PyObject* gradient) = 0;
  // What one node of the graph brought is composed; tensors it gave must not be kept any longer.
  virtual void Settle(const std::string& name) = 0;
  // All gradients that will come have come; null where none came.
  virtual void Complete(const std::string& name, const std::string& parent,
                        std::vector<Gradient> inputs, std::vector<Gradient> outputs) = 0;
  // A hook could not do its work.
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
    PyRef node;  // grad_fn; null for a leaf
    PyObject* leaf = nullptr;
    int64_t number = 0;
    size_t slot;  // position among the call's tensors
  };
  std::vector<Edge> edges_;
  size_t slots_ = 0;
  uint64_t first_sequence_ = 0;  // nodes made by the call have at least this number
};

// Returns false when there is nothing to wait for (no output requires grad). Never leaves a Python
// error set.
bool ArmBackward(const InputEdges& edges, const std::vector<PyObject*>& outputs, GradientSink* sink,
                 int64_t step, std::string name, std::string parent);

// Completes what is still waiting, in order of first arrival: gradients that will not come any more
// (at stop).
void FlushBackward();

// On while calls are armed: their hooks are registered the short way (node_hooks.h).
void WatchBackward(bool on);

// Readies the hook type; once, at import.
bool InitBackward();

}  // namespace msprobe::capture
