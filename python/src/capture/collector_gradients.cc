// What the hooks on the graph bring: gradients of calls become entries.
#include "capture/calls/interpose.h"
#include "capture/collector.h"
#include "capture/python/torch_api.h"
#include "engine/model/names.h"

namespace msprobe::capture {

const Collector::ArrivedCall* Collector::Arrive(const std::string& name) {
  const bool renamed = run_.session->RenamesGradients();
  if (!renamed && run_.session->filter().wants_all_entries()) return nullptr;
  const auto [it, is_new] = arrived_.try_emplace(name);
  if (is_new) {
    it->second.name = renamed ? run_.session->NameGradients(name) : name;
    it->second.wanted = run_.session->filter().WantsEntry(it->second.name);
  }
  return &it->second;
}

Gradient Collector::Compose(const std::string& call, bool is_input, size_t index,
                            PyObject* gradient) {
  const dump::DataMode& mode = run_.session->filter().data_mode;
  if (!(is_input ? mode.backward_input : mode.backward_output) || !run_.records_values() ||
      !TorchApi::Get().IsTensor(gradient))
    return nullptr;
  const ArrivedCall* arrived = Arrive(call);
  if (arrived != nullptr && !arrived->wanted) return nullptr;
  const std::string& name = arrived == nullptr ? call : arrived->name;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  std::string file;
  if (run_.Stores(name))
    file = SafeFileName(name + (is_input ? ".input." : ".output.") + std::to_string(index), ".pt");
  Nonfinite nonfinite;
  std::vector<Held> held;
  EntryStyle style = run_.StyleOf(name, !is_input);
  if (run_.looks_for_overflow()) style.held = &held;
  auto value =
      std::make_unique<TensorValue>(RecordTensor(gradient, run_.options, style, file, &nonfinite));
  if (run_.looks_for_nan() || run_.looks_for_overflow())
    overflow_.HoldGradient(call, is_input, std::move(held), nonfinite);
  return value;
}

void Collector::Settle(const std::string& name) {
  if (run_.looks_for_overflow()) overflow_.Settle(name);
}

void Collector::Complete(const std::string& call, const std::string& parent,
                         std::vector<Gradient> inputs, std::vector<Gradient> outputs) {
  SeenGradients seen = overflow_.Take(call);
  const ArrivedCall* found = run_.session->collecting() ? Arrive(call) : nullptr;
  ArrivedCall arrived = found == nullptr ? ArrivedCall{.name = call} : *found;
  arrived_.erase(call);
  if (const auto stack = backward_stacks_.extract(call); !stack.empty())
    arrived.stack = stack.mapped();
  if (!run_.session->collecting() || !arrived.wanted ||
      !RecordGradients(arrived, parent, &inputs, &outputs, &seen))
    ++run_.coverage.ignored_gradients;
}

// False when the task finds nothing in them.
bool Collector::RecordGradients(const ArrivedCall& call, const std::string& parent,
                                std::vector<Gradient>* inputs, std::vector<Gradient>* outputs,
                                SeenGradients* seen) {
  const std::string& name = call.name;
  if (!run_.records_values()) {
    ++run_.coverage.gradients;
    run_.session->Record({.name = name, .parent = parent, .construct = run_.modules_wanted});
    return true;
  }
  Entry& entry = gradient_entry_;  // the GIL is held all along
  entry.Begin(name);
  const auto slot = [&](const char* key, std::vector<Gradient>* gradients) {
    entry.BeginSlot(key, key, Entry::Container::kList);
    for (const Gradient& gradient : *gradients)
      gradient == nullptr ? entry.Null() : entry.AddTensor(std::move(*gradient));
    entry.EndSlot();
  };
  const dump::DataMode& mode = run_.session->filter().data_mode;
  if (mode.backward_input) slot("input", inputs);
  if (mode.backward_output) slot("output", outputs);
  if (run_.looks_for_nan()) entry.is_nan = seen->made.any();
  std::string_view kinds;
  if (run_.looks_for_overflow() && (kinds = overflow_.SettleBackward(name, seen, &entry)).empty())
    return false;
  entry.stack = call.stack;
  ++run_.coverage.gradients;
  run_.session->Record({&entry, name, parent, run_.modules_wanted});
  if (run_.device.many_pending()) run_.FetchDeferred();
  if (!kinds.empty()) overflow_.Count(name, kinds, seen->site);
  return true;
}

void Collector::Fault(const char* what) noexcept {
  try {
    const std::string_view text = what;
    run_.session->Fail(text == "std::bad_alloc" ? Unsupported("out of memory") : Internal(what));
  } catch (const std::exception&) {
    run_.session->Fail(Status::Ok());  // there is no memory even to say so
  }
}

}  // namespace msprobe::capture
