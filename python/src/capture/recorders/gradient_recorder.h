// Makes entries of the gradients of recorded calls: one for each call, when all its gradients have
// come.
//
//   gradients.Expect(call, outputs);   // after the call has returned
//   FlushBackward();                   // at stop: records calls whose other gradients are missing
//   gradients.NewStep();
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/gradients/backward.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/gradients_before.h"
#include "capture/tasks/overflow_check.h"

namespace msprobe::capture {

class GradientRecorder final : public GradientSink {
 public:
  GradientRecorder(Recording* recording, OverflowCheck* overflow, GradientsBefore* before)
      : recording_(recording), overflow_(overflow), before_(before) {}

  // The gradients of a call that has returned `outputs` are recorded when they come.
  void Expect(const OpenCall& call, const std::vector<PyObject*>& outputs);
  void NewStep() { forward_stacks_.clear(); }
  void Forget();  // drops the calls of which some gradients have come

  bool Accepts(int64_t dump) const override {
    return recording_->session->collecting() && recording_->session->dump() == dump;
  }
  void OnArrival() override { before_->OnArrival(); }
  DeviceReader* reader() override { return recording_->options.device; }
  Gradient Compose(const std::string& call, bool is_input, size_t index,
                   PyObject* gradient) override;
  void OnNodeDone(const std::string& call) override;
  void Complete(const std::string& call, const std::string& parent, std::vector<Gradient> inputs,
                std::vector<Gradient> outputs) override;
  void Fault(const char* what) noexcept override { recording_->Fault(what); }

 private:
  // A backward call of which some gradients have come.
  struct BackwardCall {
    std::string name;  // of its entry
    bool wanted = true;
    int64_t stack = -1;  // of the forward call
  };
  // Null: the entry has the name of the call and is wanted, as all entries are.
  const BackwardCall* BackwardCallOf(const std::string& call);
  void Record(const BackwardCall& call, const std::string& parent, std::vector<Gradient>* inputs,
              std::vector<Gradient>* outputs, const std::shared_ptr<SeenGradients>& seen);
  void Write(const BackwardCall& call, const std::string& parent, Entry* entry);
  // Task overflow_check: writes it when the call makes NaN or infinities.
  void DecideBackward(const BackwardCall& call, const std::string& parent, Entry* entry,
                      const std::shared_ptr<SeenGradients>& seen);

  Recording* recording_;
  OverflowCheck* overflow_;
  GradientsBefore* before_;
  LentEntry::Place entry_;
  std::unordered_map<std::string, BackwardCall> backward_calls_;
  // Filled for pkl files only, which show the stack of the forward call for backward calls as well.
  std::unordered_map<std::string, int64_t> forward_stacks_;
};

}  // namespace msprobe::capture
