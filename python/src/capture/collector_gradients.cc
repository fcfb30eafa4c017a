// What the hooks on the graph bring: gradients of calls become entries.
#include "capture/collector.h"
#include "capture/interpose.h"
#include "capture/torch_api.h"
#include "engine/dump/names.h"

namespace msprobe::capture {

std::string Collector::Compose(const std::string& name, bool is_input, size_t index,
                               PyObject* gradient) {
  std::string json;
  const DataMode& mode = session_->filter().data_mode;
  if (!(is_input ? mode.backward_input : mode.backward_output) || !records_values() ||
      !TorchApi::Get().IsTensor(gradient))
    return "null";
  const Interposer::Pause pause;
  const QuietTorch quiet;
  std::string file;
  if (Stores(name))
    file = SafeFileName(name + (is_input ? ".input." : ".output.") + std::to_string(index), ".pt");
  Nonfinite nonfinite;
  std::vector<Held> held;
  EntryStyle style = StyleOf(name, !is_input);
  if (looks_for_overflow()) style.held = &held;
  AppendTensorJson(&json, gradient, options_, style, file, &nonfinite);
  if (looks_for_nan() || looks_for_overflow())
    HoldGradient(name, is_input, std::move(held), nonfinite);
  return json;
}

void Collector::Complete(const std::string& name, const std::string& parent,
                         const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
  SeenGradients seen;
  if (auto found = seen_gradients_.extract(name); !found.empty()) seen = std::move(found.mapped());
  for (const Held& held : seen.incoming) held_bytes_ -= held.bytes;
  if (!session_->collecting() || !session_->filter().WantsEntry(name) ||
      !RecordGradients(name, parent, inputs, outputs, &seen))
    ++coverage_.ignored_gradients;
}

// False when the task finds nothing in them.
bool Collector::RecordGradients(const std::string& name, const std::string& parent,
                                const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs, SeenGradients* seen) {
  if (!records_values()) {
    ++coverage_.gradients;
    session_->Record({.entry = "", .name = name, .parent = parent, .construct = modules_wanted_});
    return true;
  }
  EntryBuilder& builder = gradient_entry_;  // the GIL is held all along
  builder.Begin(name);
  const auto slot = [&](const char* key, const std::vector<std::string>& values) {
    builder.BeginSlot(key, key, '[');
    for (const std::string& value : values) builder.Piece(value);
    builder.EndSlot(']');
  };
  const DataMode& mode = session_->filter().data_mode;
  if (mode.backward_input) slot("input", inputs);
  if (mode.backward_output) slot("output", outputs);
  if (looks_for_nan()) builder.RawField("is_nan", seen->made.any() ? "1" : "0");
  std::string_view overflow;
  if (looks_for_overflow() && (overflow = SettleBackward(name, seen, &builder)).empty())
    return false;
  ++coverage_.gradients;
  session_->Record({builder.Finish(), name, parent, modules_wanted_});
  if (device_.many_pending()) FetchLate();
  if (!overflow.empty()) CountOverflow(name, overflow, seen->site);
  return true;
}

void Collector::Fault(const char* what) noexcept {
  try {
    const std::string_view text = what;
    session_->Fail(text == "std::bad_alloc" ? Unsupported("out of memory") : Internal(what));
  } catch (const std::exception&) {
    session_->Fail(Status::Ok());  // there is no memory even to say so
  }
}

}  // namespace msprobe::capture
