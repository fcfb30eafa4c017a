#include "capture/tasks/overflow_check.h"

#include <fmt/format.h>

#include "capture/python/framework.h"
#include "engine/base/log.h"
#include "engine/model/names.h"

namespace msprobe::capture {
namespace {

// Bytes of gradients that are held while others of the same call are waited for; beyond this limit
// gradients are not kept.
constexpr int64_t kMaxHeldBytes = int64_t{256} << 20;

}  // namespace

// Whether the device has overflowed since it was asked last.
bool OverflowCheck::FlagIsSet() {
  const PyRef answer = PyRef::Steal(PyObject_CallNoArgs(flag_.get()));
  const bool is_set = answer && PyObject_IsTrue(answer.get()) == 1;
  if (!answer) flag_ = PyRef();  // the device cannot tell: from now on the values decide
  ClearError();
  return is_set;
}

Message OverflowCheck::Judge(const std::string& name, const Nonfinite& given, const Nonfinite& made,
                             int64_t site) {
  if (flag_) return FlagIsSet() ? "an overflow"_t : Message();
  // The older tools report each call whose results hold NaN or infinity, also one that passes it
  // on.
  if (recording_->config().pkl) return KindsIntroduced({}, made);
  const std::string_view api = ParseEntryName(name).api;
  if (ReturnsUnwrittenMemory(api.substr(api.rfind('.') + 1))) return {};
  Message kinds = KindsIntroduced(given, made);
  if (!kinds.empty() || !made.any()) return kinds;
  // Logged once in a dump, since all later calls pass it on as well.
  if (std::exchange(passed_on_dump_, recording_->session->dump()) != recording_->session->dump()) {
    Log(LogLevel::kWarning, Message::Joined({"{} passes on {} of its inputs"_t(
                                                 name, std::string(made.nan ? "NaN" : "Inf")),
                                             recording_->WhereIs(site)},
                                            ": "));
  }
  return {};
}

void OverflowCheck::Count(const std::string& name, const Message& kinds, int64_t site) {
  findings_->Count("{} makes {}"_t(name, kinds), recording_->config().overflow_nums,
                   "{} calls that overflow are recorded"_t, site);
}

void OverflowCheck::HoldGradient(const std::string& name, bool is_input,
                                 std::vector<HeldTensor> held, const Nonfinite& nonfinite) {
  SeenGradients& seen = seen_[name];
  (is_input ? seen.given : seen.made).Add(nonfinite);
  nonfinite_gradients_ |= nonfinite.any();
  for (HeldTensor& h : held) {
    if (is_input && held_bytes_ + h.bytes > kMaxHeldBytes) {
      seen.lost.push_back(h.file);
    } else {
      held_bytes_ += is_input ? h.bytes : 0;
      (is_input ? seen.incoming : seen.outgoing).push_back(std::move(h));
    }
  }
}

void OverflowCheck::StoreOrDropOutgoing(SeenGradients* seen) {
  const bool keeps = !KindsIntroduced(seen->given, seen->made).empty();
  for (const HeldTensor& held : seen->outgoing) {
    if (!keeps || !recording_->StoreHeld(held)) seen->lost.push_back(held.file);
  }
  seen->outgoing.clear();
}

void OverflowCheck::OnNodeDone(const std::string& name) {
  if (const auto it = seen_.find(name); it != seen_.end()) StoreOrDropOutgoing(&it->second);
}

SeenGradients OverflowCheck::Take(const std::string& name) {
  SeenGradients seen;
  if (auto found = seen_.extract(name); !found.empty()) seen = std::move(found.mapped());
  for (const HeldTensor& held : seen.incoming) held_bytes_ -= held.bytes;
  return seen;
}

Message OverflowCheck::JudgeBackward(const std::string& name, SeenGradients* seen, Entry* entry) {
  StoreOrDropOutgoing(seen);
  Message kinds = Judge(name, seen->given, seen->made, seen->site);
  if (kinds.empty()) return kinds;
  recording_->StoreAll(seen->incoming, entry);
  for (const std::string& file : seen->lost) entry->ForgetFile(file);
  return kinds;
}

// The inputs of a parameter's gradient are not known. So it counts as made here when it is the
// first gradient of the step that is not finite.
void OverflowCheck::CheckParameter(const NamedModule& module, const std::string& parameter,
                                   PyObject* gradient) {
  const int64_t call = recording_->session->calls().Next(module.gradient_counter);
  const std::string name = ComposeEntryName(module.stem, call, "parameters_grad", true);
  if (!recording_->session->filter().WantsEntry(name)) return;
  std::vector<HeldTensor> held;
  Nonfinite nonfinite;
  TensorValue value = RecordTensor(
      gradient, recording_->options, {.store = true, .held = &held},
      SafeFileName(name + "." + parameter, Framework::Get().tensor_suffix), &nonfinite);
  if (!nonfinite.any() || std::exchange(nonfinite_gradients_, true)) return;
  Entry entry;
  entry.Begin(name);
  entry.BeginSlot(parameter, "", Entry::Container::kList);
  entry.AddTensor(std::move(value));
  entry.EndSlot();
  recording_->StoreAll(held, &entry);
  recording_->session->Record({.entry = &entry, .name = name});
  Count(name, KindsIntroduced({}, nonfinite), -1);
}

void OverflowCheck::Forget() {
  seen_.clear();
  held_bytes_ = 0;
  nonfinite_gradients_ = false;
}

}  // namespace msprobe::capture
