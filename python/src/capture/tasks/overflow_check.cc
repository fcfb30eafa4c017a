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
std::optional<Message> OverflowCheck::AskFlag() {
  if (!flag_) return std::nullopt;
  const PyRef answer = PyRef::Steal(PyObject_CallNoArgs(flag_.get()));
  const bool is_set = answer && PyObject_IsTrue(answer.get()) == 1;
  if (!answer) flag_ = PyRef();  // the device cannot tell: from now on the values decide
  ClearError();
  return is_set ? "an overflow"_t : Message();
}

SeenGradients& OverflowCheck::Seen(const std::string& name) {
  std::shared_ptr<SeenGradients>& seen = seen_[name];
  if (seen == nullptr) seen = std::make_shared<SeenGradients>();
  return *seen;
}

Message OverflowCheck::Judge(const std::string& name, const Nonfinite& given, const Nonfinite& made,
                             int64_t site) {
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
                                 std::vector<HeldTensor> held, const LateNonfinite& nonfinite) {
  SeenGradients& seen = Seen(name);
  (is_input ? seen.given : seen.made).Add(nonfinite);
  for (HeldTensor& h : held) {
    if (is_input && held_bytes_ + h.bytes > kMaxHeldBytes) {
      seen.lost.push_back(h.file);
    } else {
      held_bytes_ += is_input ? h.bytes : 0;
      (is_input ? seen.incoming : seen.outgoing).push_back(std::move(h));
    }
  }
}

void OverflowCheck::StoreOrDrop(const Outgoing& outgoing, SeenGradients* seen) {
  const Nonfinite given = outgoing.given.Known(), made = outgoing.made.Known();
  nonfinite_gradients_ |= given.any() || made.any();
  const bool keeps = !KindsIntroduced(given, made).empty();
  for (const HeldTensor& held : outgoing.held) {
    if (!keeps || !recording_->StoreHeld(held)) seen->lost.push_back(held.file);
  }
}

void OverflowCheck::StoreOrDropOutgoing(const std::shared_ptr<SeenGradients>& seen) {
  LateTensors needs = Joined(seen->given, seen->made);
  Outgoing outgoing{seen->given, seen->made, std::exchange(seen->outgoing, {})};
  if (recording_->DecidesNow(&needs, &outgoing.held)) return StoreOrDrop(outgoing, seen.get());
  const auto kept = std::make_shared<Outgoing>(std::move(outgoing));
  recording_->late.Add(std::move(needs), [this, kept, seen] { StoreOrDrop(*kept, seen.get()); });
}

void OverflowCheck::OnNodeDone(const std::string& name) {
  if (const auto it = seen_.find(name); it != seen_.end()) {
    const std::shared_ptr<SeenGradients> seen = it->second;
    StoreOrDropOutgoing(seen);
  }
}

std::shared_ptr<SeenGradients> OverflowCheck::Take(const std::string& name) {
  auto found = seen_.extract(name);
  auto seen = found.empty() ? std::make_shared<SeenGradients>() : std::move(found.mapped());
  for (const HeldTensor& held : seen->incoming) held_bytes_ -= held.bytes;
  if (!found.empty() && recording_->looks_for_overflow()) StoreOrDropOutgoing(seen);
  return seen;
}

Message OverflowCheck::JudgeBackward(const std::string& name, SeenGradients* seen, Entry* entry) {
  Message kinds = seen->flagged ? *seen->flagged
                                : Judge(name, seen->given.Known(), seen->made.Known(), seen->site);
  if (kinds.empty()) return kinds;
  Resolve(Joined(seen->given, seen->made), entry);
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
  const auto found = std::make_shared<OfParameter>();
  found->entry = name;
  found->parameter = parameter;
  found->value = RecordTensor(gradient, recording_->options, {.store = true, .held = &found->held},
                              SafeFileName(name + "." + parameter, Framework::Get().tensor_suffix),
                              &found->nonfinite);
  LateTensors needs = found->nonfinite.late;
  if (recording_->DecidesNow(&needs, &found->held)) return Decide(found.get());
  recording_->late.Add(std::move(needs), [this, found] { Decide(found.get()); });
}

void OverflowCheck::Decide(OfParameter* gradient) {
  const Nonfinite made = gradient->nonfinite.Known();
  if (!made.any() || std::exchange(nonfinite_gradients_, true) ||
      !recording_->session->collecting())
    return;
  Entry entry;
  entry.Begin(gradient->entry);
  entry.BeginSlot(gradient->parameter, "", Entry::Container::kList);
  entry.AddTensor(std::move(gradient->value));
  entry.EndSlot();
  Resolve(gradient->nonfinite.late, &entry);
  recording_->StoreAll(gradient->held, &entry);
  recording_->session->Record({.entry = &entry, .name = gradient->entry});
  Count(gradient->entry, KindsIntroduced({}, made), -1);
}

void OverflowCheck::Forget() {
  seen_.clear();
  held_bytes_ = 0;
  recording_->late.Add({}, [this] { nonfinite_gradients_ = false; });
}

}  // namespace msprobe::capture
