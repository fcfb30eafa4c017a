// Task overflow_check: only calls that make NaN or infinity of what they are given are recorded,
// with their tensors. Those are kept until the call has returned, or its gradients have come; one
// that was changed in place meanwhile is not stored.
#include <fmt/format.h>

#include "capture/collector.h"
#include "capture/numpy_array.h"
#include "capture/tensor_access.h"
#include "capture/torch_api.h"
#include "engine/base/log.h"
#include "engine/dump/names.h"
#include "engine/dump/source_line.h"

namespace msprobe::capture {
namespace {

// Gradients that wait for others of the same call: beyond this they are not kept.
constexpr int64_t kMaxHeldBytes = int64_t{256} << 20;

// Of entry "a.0.forward", file "a.0.forward.input.1.pt": "input.1".
std::string_view ValueOfFile(std::string_view file, std::string_view entry) {
  if (file.starts_with(entry) && file.size() > entry.size() + 1)
    file.remove_prefix(entry.size() + 1);
  if (file.ends_with(".pt")) file.remove_suffix(3);
  return file;
}

}  // namespace

bool Collector::StoreHeld(const Held& held) {
  const auto store = [&](const auto& access) {
    return access.readable() && MeasureTensor(access.view()).fingerprint == held.fingerprint &&
           session_->Store(held.file, access.view());
  };
  return TorchApi::Get().IsTensor(held.value.get()) ? store(TensorAccess(held.value.get()))
                                                    : store(NumpyArray(held.value.get()));
}

void Collector::StoreAll(const std::vector<Held>& all, EntryBuilder* builder) {
  std::string changed;
  for (const Held& held : all) {
    if (StoreHeld(held)) continue;
    builder->ForgetFile(held.file);
    changed += changed.empty() ? "" : ", ";
    changed += ValueOfFile(held.file, builder->name());
  }
  if (!changed.empty()) builder->Field("changed_in_place", changed);
}

std::string Collector::WhereIs(int64_t site) {
  if (site < 0) return "";
  const std::vector<std::string> frames = stacks_.Format(site);
  const std::string line = UserSourceLine({frames.begin(), frames.end()});
  return line.empty() ? "" : ": " + line;
}

std::string_view Collector::Overflow(const std::string& name, const Nonfinite& given,
                                     const Nonfinite& made, int64_t site) {
  const std::string_view api = ParseEntryName(name).api;
  if (ReturnsUnwrittenMemory(api.substr(api.rfind('.') + 1))) return "";
  const std::string_view kinds = KindsIntroduced(given, made);
  if (!kinds.empty() || !made.any()) return kinds;
  // Once a step: everything behind it passes it on.
  if (std::exchange(passed_on_step_, session_->step()) != session_->step()) {
    Log(LogLevel::kWarning, fmt::format("{} passes on {} that it was given{}", name,
                                        made.nan ? "NaN" : "Inf", WhereIs(site)));
  }
  return "";
}

void Collector::CountOverflow(const std::string& name, std::string_view kinds, int64_t site) {
  CountFound(fmt::format("{} makes {}", name, kinds), session_->config().overflow_nums, "overflow",
             site);
}

void Collector::CountFound(std::string_view what, int64_t limit, std::string_view kind,
                           int64_t site) {
  ++found_;
  Log(LogLevel::kWarning,
      fmt::format("{} ({}{}){}", what, found_, limit > 0 ? fmt::format(" of {}", limit) : "",
                  WhereIs(site)));
  if (found_ != limit) return;
  WriteCoverage();
  ReportSearch();
  session_->Conclude(fmt::format("{} calls that {} are recorded", found_, kind));
}

bool Collector::SettleForward(OpenCall* call) {
  const std::vector<Held> held = std::exchange(call->held, {});
  const std::string& name = call->builder.name();
  if (looks_for_overflow()) {
    call->found = Overflow(name, call->given, call->made, call->site);
    if (call->found.empty()) return false;
  } else if (!DiffersFromReference(call)) {
    return false;
  }
  StoreAll(held, &call->builder);
  if (session_->collecting() && session_->config().extra_info)
    call->stack = session_->NoteStack(call->site, name, [&] { return stacks_.Format(call->site); });
  return true;
}

void Collector::HoldGradient(const std::string& name, bool is_input, std::vector<Held> held,
                             const Nonfinite& nonfinite) {
  SeenGradients& seen = seen_gradients_[name];
  (is_input ? seen.given : seen.made).Add(nonfinite);
  nonfinite_gradients_ |= nonfinite.any();
  for (Held& h : held) {
    if (is_input && held_bytes_ + h.bytes > kMaxHeldBytes) {
      seen.lost.push_back(h.file);
    } else {
      held_bytes_ += is_input ? h.bytes : 0;
      (is_input ? seen.incoming : seen.outgoing).push_back(std::move(h));
    }
  }
}

void Collector::SettleOutgoing(SeenGradients* seen) {
  const bool keeps = !KindsIntroduced(seen->given, seen->made).empty();
  for (const Held& held : seen->outgoing) {
    if (!keeps || !StoreHeld(held)) seen->lost.push_back(held.file);
  }
  seen->outgoing.clear();
}

void Collector::Settle(const std::string& name) {
  if (!looks_for_overflow()) return;
  // Outgoing gradients go on to be added to: nobody else may hold them then.
  if (const auto it = seen_gradients_.find(name); it != seen_gradients_.end())
    SettleOutgoing(&it->second);
}

std::string_view Collector::SettleBackward(const std::string& name, SeenGradients* seen,
                                           EntryBuilder* builder) {
  SettleOutgoing(seen);
  const std::string_view kinds = Overflow(name, seen->given, seen->made, seen->site);
  if (kinds.empty()) return kinds;
  StoreAll(seen->incoming, builder);
  for (const std::string& file : seen->lost) builder->ForgetFile(file);
  return kinds;
}

// Of a parameter: what it was made of is not known, so it counts when no gradient before it was
// otherwise. An entry of its own.
void Collector::CheckGradient(const NamedModule& module, const std::string& parameter,
                              PyObject* gradient) {
  const int64_t call = session_->NextCall(module.gradient_counter);
  const std::string name = ComposeEntryName(module.stem, call, "parameters_grad", true);
  if (!session_->filter().WantsEntry(name)) return;
  EntryBuilder builder;
  builder.Begin(name);
  std::vector<Held> held;
  std::string json;
  Nonfinite nonfinite;
  AppendTensorJson(&json, gradient, options_, {.store = true, .held = &held},
                   SafeFileName(name + "." + parameter, ".pt"), &nonfinite);
  if (!nonfinite.any() || std::exchange(nonfinite_gradients_, true)) return;
  builder.BeginSlot(parameter, "", '[');
  builder.Piece(json);
  builder.EndSlot(']');
  StoreAll(held, &builder);
  session_->Record({.entry = builder.Finish(), .name = name});
  CountOverflow(name, KindsIntroduced({}, nonfinite), -1);
}

void Collector::ForgetGradients() {
  seen_gradients_.clear();
  held_bytes_ = 0;
  nonfinite_gradients_ = false;
}

}  // namespace msprobe::capture
