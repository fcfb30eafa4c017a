// Task overflow_check: only calls are recorded whose outputs hold NaN or infinity and whose inputs
// do not, with all their tensors. The tensors are held until the call has returned, or until its
// gradients have come; a tensor that was changed in place since is not stored. Numbers of a device
// come later: then the decision is one of Recording::late, about the tensors as they were. Task
// nan_check uses this class to learn whether gradients hold NaN or infinity.
//
//   check.HoldGradient(name, /*is_input=*/true, held, nonfinite);     // as each comes
//   const auto seen = check.Take(name);                               // when all have come
//   if (!check.JudgeBackward(name, seen.get(), &entry).empty()) Record();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/modules/module_tree.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/findings.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

// What is known of the gradients of one call until all have come.
struct SeenGradients {
  // Whether the gradients of its outputs, and of its inputs, are not finite.
  LateNonfinite given, made;
  std::optional<Message> flagged;              // as OpenCall::flagged
  int64_t site = -1;                           // number of the forward call's stack
  std::vector<HeldTensor> incoming, outgoing;  // tensors whose files are not written yet
  std::vector<std::string> lost;               // names of files that cannot be written
};

class OverflowCheck {
 public:
  OverflowCheck(Recording* recording, Findings* findings)
      : recording_(recording), findings_(findings) {}

  // `flag`: a callable that returns whether the device has overflowed since the last time, as NPUs
  // can tell. If set, it decides after each call; null: the values decide.
  void SetFlag(PyRef flag) { flag_ = std::move(flag); }

  // What the flag says of the call that has just ended: "" or "an overflow". nullopt: the values
  // decide.
  std::optional<Message> AskFlag();
  // The kinds ("NaN") that the outputs hold and the inputs do not; "": the call is not recorded.
  // The first call of a step that only passes a kind on is logged.
  Message Judge(const std::string& name, const Nonfinite& given, const Nonfinite& made,
                int64_t site);
  // To be called after a call was recorded: counts it, and ends collection after the last one.
  void Count(const std::string& name, const Message& kinds, int64_t site);

  // Gradients of this call will come; `site`: number of the forward call's stack.
  void Expect(const std::string& name, int64_t site) { Seen(name).site = site; }
  void HoldGradient(const std::string& name, bool is_input, std::vector<HeldTensor> held,
                    const LateNonfinite& nonfinite);
  // Outgoing gradients are stored or dropped as they are now: autograd adds to them in place next.
  void OnNodeDone(const std::string& name);
  // All gradients of the call have come: hands out what is known of them, and forgets it. The
  // outgoing ones are stored or dropped. Never null.
  std::shared_ptr<SeenGradients> Take(const std::string& name);
  // As Judge, for a backward call; stores its tensors when it is recorded.
  Message JudgeBackward(const std::string& name, SeenGradients* seen, Entry* entry);
  // Checks the gradient of a parameter, and records it as an entry of its own.
  void CheckParameter(const NamedModule& module, const std::string& parameter, PyObject* gradient);
  void Forget();  // drops all gradients that are waited for

 private:
  // A gradient of a parameter.
  struct OfParameter {
    std::string entry, parameter;
    TensorValue value;
    std::vector<HeldTensor> held;
    LateNonfinite nonfinite;
  };
  // Outgoing gradients of one node, and what was known when it had run.
  struct Outgoing {
    LateNonfinite given, made;
    std::vector<HeldTensor> held;
  };
  void StoreOrDrop(const Outgoing& outgoing, SeenGradients* seen);
  void StoreOrDropOutgoing(const std::shared_ptr<SeenGradients>& seen);
  void Decide(OfParameter* gradient);
  SeenGradients& Seen(const std::string& name);

  PyRef flag_;
  Recording* recording_;
  Findings* findings_;
  std::unordered_map<std::string, std::shared_ptr<SeenGradients>> seen_;  // by entry name
  int64_t held_bytes_ = 0, passed_on_dump_ = -1;
  bool nonfinite_gradients_ = false;  // some gradient of this step was not finite
};

}  // namespace msprobe::capture
