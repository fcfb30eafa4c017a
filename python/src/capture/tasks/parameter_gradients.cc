#include "capture/tasks/parameter_gradients.h"

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"
#include "engine/model/names.h"

namespace msprobe::capture {

bool ParameterGradients::Wants() const {
  return recording_->session->collecting() && recording_->session->filter().data_mode.backward() &&
         recording_->records_values();
}

template <typename Record>
void ParameterGradients::Arrive(PyObject* module, const NamedModule& known,
                                const std::string& parameter, Record&& record) {
  Arrived& arrived = arrived_[module];
  if (arrived.gradients.count(parameter) > 0) Write(known, &arrived);
  if (arrived.entry.empty()) {
    arrived.entry =
        ComposeEntryName(known.stem, recording_->session->calls().Next(known.gradient_counter),
                         "parameters_grad", true);
    arrived.wanted = recording_->session->filter().WantsEntry(arrived.entry);
  }
  if (!arrived.wanted) {
    arrived.gradients[parameter];
    if (arrived.gradients.size() == known.parameters.size()) Write(known, &arrived);
    return;
  }
  std::string file;
  if (recording_->Stores(arrived.entry))
    file = SafeFileName(arrived.entry + "." + parameter, Framework::Get().tensor_suffix);
  const std::string entry = arrived.entry;
  TensorValue value = record(recording_->StyleOf(entry, /*is_output=*/true), file);
  // The GIL was released: another thread may have written the entry, or forgotten the modules.
  const auto waiting = arrived_.find(module);
  const NamedModule* const named = modules_->Find(module);
  if (named == nullptr || waiting == arrived_.end() || waiting->second.entry != entry) return;
  waiting->second.gradients[parameter] = std::move(value);
  if (waiting->second.gradients.size() == named->parameters.size()) Write(*named, &waiting->second);
}

void ParameterGradients::OnGradient(PyObject* module, const std::string& parameter,
                                    PyObject* gradient) {
  const NamedModule* known = modules_->Find(module);
  if (known == nullptr || !Wants()) return;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  if (recording_->looks_for_overflow())
    return overflow_->CheckParameter(*known, parameter, gradient);
  Arrive(module, *known, parameter, [&](const EntryStyle& style, const std::string& file) {
    return RecordTensor(gradient, recording_->options, style, file);
  });
}

void ParameterGradients::OnGradient(const std::string& module, const std::string& parameter,
                                    FrameworkTensor* gradient) {
  if (!Wants()) return;
  if (by_stem_.empty()) {
    for (const PyRef& each : modules_->in_order()) {
      if (const NamedModule* known = modules_->Find(each.get()))
        by_stem_.emplace(known->stem, each.get());
    }
  }
  const auto it = by_stem_.find(module + ".");
  if (it == by_stem_.end()) return;
  const KeepError keep;
  const Interposer::Pause pause;
  Arrive(it->second, *modules_->Find(it->second), parameter,
         [&](const EntryStyle& style, const std::string& file) {
           return RecordTensor(gradient, recording_->options, style, file);
         });
}

void ParameterGradients::WriteAll() {
  for (const PyRef& module : modules_->in_order()) {
    const auto it = arrived_.find(module.get());
    if (it != arrived_.end()) Write(*modules_->Find(module.get()), &it->second);
  }
}

void ParameterGradients::Write(const NamedModule& module, Arrived* arrived) {
  if (arrived->gradients.empty()) return;
  if (arrived->wanted) {
    Entry entry;
    entry.Begin(arrived->entry);
    for (const std::string& parameter : module.parameters) {
      const auto it = arrived->gradients.find(parameter);
      if (it == arrived->gradients.end()) continue;
      entry.BeginSlot(parameter, "", Entry::Container::kList);
      entry.AddTensor(std::move(it->second));
      entry.EndSlot();
    }
    recording_->session->Record({.entry = &entry, .name = arrived->entry});
  }
  arrived->gradients.clear();
  arrived->entry.clear();
}

}  // namespace msprobe::capture
