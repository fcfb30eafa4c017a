// Gradients of calls that run a second time: a graph of our own is kept for each call until the
// gradients of the program's call have come; then the same incoming gradients, changed, are sent
// through it.
//
//   RepeatedGradients repeats(&recording, &verdicts);
//   repeats.Expect(std::move(call), edges, outputs);   // after the call has run twice
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/gradients/backward.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

struct RepeatedGradient {
  std::string name;  // of its entry
  int64_t site = -1;
  std::vector<PyRef> outputs;  // of the second run; null: it has no gradient
  std::vector<PyRef> leaves;   // tensors of the second run, by tensor of the call
  // Of the program's call, copies: of its outputs, and of its tensors. Null: none has come.
  std::vector<PyRef> incoming, outgoing;
};

class GradientVerdicts {
 public:
  virtual ~GradientVerdicts() = default;
  // All gradients of the program's call have come.
  virtual void JudgeGradients(const RepeatedGradient& call) = 0;
};

class RepeatedGradients final : public GradientSink {
 public:
  RepeatedGradients(Recording* recording, GradientVerdicts* verdicts)
      : recording_(recording), verdicts_(verdicts) {}

  // `outputs`: the tensors that the program's call returned. False: none has a gradient.
  bool Expect(RepeatedGradient call, const InputEdges& edges,
              const std::vector<PyObject*>& outputs);
  void Forget() { calls_.clear(); }
  size_t waiting() const { return calls_.size(); }  // calls whose gradients have not come

  bool Accepts(int64_t dump) const override {
    return recording_->session->collecting() && recording_->session->dump() == dump;
  }
  Gradient Compose(const std::string& name, bool is_input, size_t index,
                   PyObject* gradient) override;
  void OnNodeDone(const std::string& /*name*/) override {}
  void Complete(const std::string& name, const std::string& parent, std::vector<Gradient> inputs,
                std::vector<Gradient> outputs) override;
  void Fault(const char* what) noexcept override { recording_->Fault(what); }

 private:
  Recording* recording_;
  GradientVerdicts* verdicts_;
  std::unordered_map<std::string, RepeatedGradient> calls_;  // by entry name
};

}  // namespace msprobe::capture
