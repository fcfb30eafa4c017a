// Makes entries of what the taps in compiled graphs tell (python/msprobe/mindspore/graph.py): the
// outputs of a Cell, and the gradients of these.
//
//   graphs.Forward("Cell.fc1.Dense", "Cell.block.Block", &tensors);   // Cell.fc1.Dense.forward.0
//   graphs.Backward("Cell.fc1.Dense", &tensors);                      // Cell.fc1.Dense.backward.0
//   graphs.NewStep();
#pragma once

#include <Python.h>

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/recording/recording.h"
#include "capture/values/framework_tensor.h"

namespace msprobe::capture {

class GraphRecorder {
 public:
  explicit GraphRecorder(Recording* recording) : recording_(recording) {}

  using Tensors = std::deque<FrameworkTensor>;  // that cannot be moved

  // `tensors`: those of the output. `around`: the Cell that contains this one, "" for none.
  void Forward(const std::string& cell, const std::string& around, Tensors* tensors);
  // The gradients belong to the last call whose gradients have not come: a backward pass goes
  // through the calls of a Cell from the last to the first.
  void Backward(const std::string& cell, Tensors* tensors);
  // Keeps those of the names that were not called in this step: for coverage.json and the caller.
  std::vector<std::string> NotCalled(const std::vector<std::string>& cells);
  // A program ran compiled at a level that sees no calls there: for coverage.json.
  void RanCompiled(const std::string& program);
  void NewStep() { cells_.clear(); }

 private:
  struct Call {
    std::string backward, parent_backward;  // names of entries
  };
  struct Cell {
    int64_t calls = 0;
    std::vector<Call> open;  // without gradients so far
  };
  uint32_t Counter(const std::string& cell) {
    return recording_->counters.Of(cell + ".forward");  // that of the ModuleTree
  }
  // `slot`: nullptr when the values are not wanted.
  void Write(const std::string& name, const std::string& parent, const char* slot,
             Tensors* tensors);

  Recording* recording_;
  std::unordered_map<std::string, Cell> cells_;
};

}  // namespace msprobe::capture
