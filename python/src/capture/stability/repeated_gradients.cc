#include "capture/stability/repeated_gradients.h"

#include <utility>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "capture/stability/framework_state.h"
#include "capture/stability/held_call.h"

namespace msprobe::capture {

bool RepeatedGradients::Expect(RepeatedGradient call, const InputEdges& edges,
                               const std::vector<PyObject*>& outputs) {
  const std::string name = call.name;
  call.incoming.resize(outputs.size());
  call.outgoing.resize(call.leaves.size());
  calls_[name] = std::move(call);
  if (ArmBackward(edges, outputs, this, recording_->session->dump(), name, "")) return true;
  calls_.erase(name);
  return false;
}

Gradient RepeatedGradients::Compose(const std::string& name, bool is_input, size_t index,
                                    PyObject* gradient) {
  const auto found = calls_.find(name);
  if (found == calls_.end() || !TorchApi::Get().IsPlainTensor(gradient)) return nullptr;
  std::vector<PyRef>& list = is_input ? found->second.incoming : found->second.outgoing;
  if (index >= list.size()) return nullptr;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  const Context no_grad("torch.no_grad");
  const OwnOperations own;
  const PyRef detached = Detached(gradient);
  if (detached) list[index] = CallMethod(detached.get(), "clone");
  return nullptr;
}

void RepeatedGradients::Complete(const std::string& name, const std::string& /*parent*/,
                                 std::vector<Gradient> /*inputs*/,
                                 std::vector<Gradient> /*outputs*/) {
  auto call = calls_.extract(name);
  if (!call.empty() && recording_->session->collecting()) verdicts_->JudgeGradients(call.mapped());
}

}  // namespace msprobe::capture
