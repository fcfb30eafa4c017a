// Gradients of recorded calls become entries: one for each call, when all its gradients have come.
//
//   gradients.Expect(call, outputs);   // the call has returned
//   FlushBackward();                   // at stop: gradients that will not come any more
//   gradients.NewStep();
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/gradients/backward.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/overflow_check.h"

namespace msprobe::capture {

class GradientRecorder final : public GradientSink {
 public:
  GradientRecorder(Recording* recording, OverflowCheck* overflow)
      : recording_(recording), overflow_(overflow) {}

  // The gradients of a call that has returned `outputs` are recorded when they come.
  void Expect(const OpenCall& call, const std::vector<PyObject*>& outputs);
  void NewStep() { forward_stacks_.clear(); }
  void Forget();  // calls whose gradients have begun to come

  bool Accepts(int64_t step) const override {
    return recording_->session->collecting() && recording_->session->step() == step;
  }
  Gradient Compose(const std::string& call, bool is_input, size_t index,
                   PyObject* gradient) override;
  void Settle(const std::string& call) override;
  void Complete(const std::string& call, const std::string& parent, std::vector<Gradient> inputs,
                std::vector<Gradient> outputs) override;
  void Fault(const char* what) noexcept override { recording_->Fault(what); }

 private:
  // A call whose gradients have begun to come.
  struct ArrivedCall {
    std::string name;  // of its entry
    bool wanted = true;
    int64_t stack = -1;  // of the forward call
  };
  // Null: the entry has the name of the call and is wanted, as all entries are.
  const ArrivedCall* Arrive(const std::string& call);
  bool Record(const ArrivedCall& call, const std::string& parent, std::vector<Gradient>* inputs,
              std::vector<Gradient>* outputs, SeenGradients* seen);

  Recording* recording_;
  OverflowCheck* overflow_;
  Entry entry_;  // reused; the GIL is held while it is filled
  std::unordered_map<std::string, ArrivedCall> arrived_;
  // .pkl files have stacks of backward calls too: those of the forward calls.
  std::unordered_map<std::string, int64_t> forward_stacks_;
};

}  // namespace msprobe::capture
