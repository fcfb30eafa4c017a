#include "capture/recorders/gradient_recorder.h"

#include <utility>

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"  // QuietTorch
#include "engine/base/messages/message.h"
#include "engine/model/names.h"

namespace msprobe::capture {

void GradientRecorder::Expect(const OpenCall& call, const std::vector<PyObject*>& outputs) {
  if (!ArmBackward(call.edges, outputs, this, call.dump, call.backward, call.parent_backward))
    return;
  ++recording_->coverage.expected_gradients;
  if (recording_->config().pkl && call.entry.stack >= 0)
    forward_stacks_[call.backward] = call.entry.stack;
  if (recording_->looks_for_overflow()) overflow_->Expect(call.backward, call.site);
}

void GradientRecorder::Forget() {
  backward_calls_.clear();
  forward_stacks_.clear();
}

const GradientRecorder::BackwardCall* GradientRecorder::BackwardCallOf(const std::string& call) {
  const bool renamed = recording_->session->calls().RenamesGradients();
  if (!renamed && recording_->session->filter().wants_all_entries()) return nullptr;
  const auto [it, is_new] = backward_calls_.try_emplace(call);
  if (is_new) {
    it->second.name = renamed ? recording_->session->calls().NameGradients(call) : call;
    it->second.wanted = recording_->session->filter().WantsEntry(it->second.name);
  }
  return &it->second;
}

Gradient GradientRecorder::Compose(const std::string& call, bool is_input, size_t index,
                                   PyObject* gradient) {
  const dump::DataMode& mode = recording_->session->filter().data_mode;
  if (!(is_input ? mode.backward_input : mode.backward_output) || !recording_->records_values() ||
      !Framework::Get().IsTensor(gradient))
    return nullptr;
  const BackwardCall* arrived = BackwardCallOf(call);
  if (arrived != nullptr && !arrived->wanted) return nullptr;
  const std::string& name = arrived == nullptr ? call : arrived->name;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  std::string file;
  if (recording_->Stores(name))
    file = SafeFileName(name + (is_input ? ".input." : ".output.") + std::to_string(index),
                        Framework::Get().tensor_suffix);
  LateNonfinite nonfinite;
  std::vector<HeldTensor> held;
  EntryStyle style = recording_->StyleOf(name, !is_input);
  if (recording_->looks_for_overflow()) style.held = &held;
  // Made in its place: make_unique would move it there.
  std::unique_ptr<TensorValue> value(
      new TensorValue(RecordTensor(gradient, recording_->options, style, file, &nonfinite)));
  if (recording_->looks_for_nan() || recording_->looks_for_overflow())
    overflow_->HoldGradient(call, is_input, std::move(held), nonfinite);
  return value;
}

void GradientRecorder::OnNodeDone(const std::string& call) {
  if (recording_->looks_for_overflow()) overflow_->OnNodeDone(call);
}

void GradientRecorder::Complete(const std::string& call, const std::string& parent,
                                std::vector<Gradient> inputs, std::vector<Gradient> outputs) {
  const bool judges = recording_->looks_for_nan() || recording_->looks_for_overflow();
  const std::shared_ptr<SeenGradients> seen = judges ? overflow_->Take(call) : nullptr;
  const BackwardCall* found = recording_->session->collecting() ? BackwardCallOf(call) : nullptr;
  BackwardCall arrived = found == nullptr ? BackwardCall{.name = call} : *found;
  if (!backward_calls_.empty()) backward_calls_.erase(call);
  if (!forward_stacks_.empty()) {
    if (const auto stack = forward_stacks_.extract(call); !stack.empty())
      arrived.stack = stack.mapped();
  }
  if (!recording_->session->collecting() || !arrived.wanted) {
    ++recording_->coverage.ignored_gradients;
  } else {
    Record(arrived, parent, &inputs, &outputs, seen);
  }
}

void GradientRecorder::Record(const BackwardCall& call, const std::string& parent,
                              std::vector<Gradient>* inputs, std::vector<Gradient>* outputs,
                              const std::shared_ptr<SeenGradients>& seen) {
  const std::string& name = call.name;
  if (!recording_->records_values()) {
    ++recording_->coverage.gradients;
    recording_->session->Record(
        {.name = name, .parent = parent, .construct = recording_->modules_wanted});
    return;
  }
  LentEntry lent(&entry_);
  Entry& entry = *lent.get();
  entry.Begin(name);
  const auto slot = [&](const char* key, std::vector<Gradient>* gradients) {
    entry.BeginSlot(key, key, Entry::Container::kList);
    for (const Gradient& gradient : *gradients)
      gradient == nullptr ? entry.Null() : entry.AddTensor(std::move(*gradient));
    entry.EndSlot();
  };
  const dump::DataMode& mode = recording_->session->filter().data_mode;
  if (mode.backward_input) slot("input", inputs);
  if (mode.backward_output) slot("output", outputs);
  if (recording_->looks_for_nan()) entry.is_nan = seen->made.here.any();
  if (recording_->looks_for_overflow()) {
    DecideBackward(call, parent, &entry, seen);
  } else {
    Write(call, parent, &entry);
  }
  recording_->TakeArrived();
}

void GradientRecorder::DecideBackward(const BackwardCall& call, const std::string& parent,
                                      Entry* entry, const std::shared_ptr<SeenGradients>& seen) {
  seen->flagged = overflow_->AskFlag();
  const auto decide = [this, call, parent, seen](Entry* decided) {
    const Message kinds = overflow_->JudgeBackward(call.name, seen.get(), decided);
    if (kinds.empty()) {
      ++recording_->coverage.ignored_gradients;
      return;
    }
    Write(call, parent, decided);
    overflow_->Count(call.name, kinds, seen->site);
  };
  LateTensors needs = Joined(seen->given, seen->made);
  if (recording_->DecidesNow(&needs, &seen->incoming)) return decide(entry);
  const auto kept = std::make_shared<Entry>(std::move(*entry));
  recording_->late.Add(std::move(needs), [this, decide, kept] {
    if (recording_->session->collecting()) decide(kept.get());
  });
}

void GradientRecorder::Write(const BackwardCall& call, const std::string& parent, Entry* entry) {
  entry->stack = call.stack;
  ++recording_->coverage.gradients;
  recording_->session->Record({entry, call.name, parent, recording_->modules_wanted});
}

}  // namespace msprobe::capture
