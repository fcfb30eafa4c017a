#include "capture/tasks/parameter_gradients.h"

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "engine/model/names.h"

namespace msprobe::capture {

void ParameterGradients::Came(PyObject* module, const std::string& parameter, PyObject* tensor) {
  const NamedModule* known = modules_->Find(module);
  if (known == nullptr || !recording_->session->collecting() ||
      !recording_->session->filter().data_mode.backward() || !recording_->records_values())
    return;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  const PyRef gradient =
      PyRef::Steal(TorchApi::Get().IsPlainTensor(tensor) ? TorchApi::Get().grad(tensor)
                                                         : PyObject_GetAttrString(tensor, "grad"));
  ClearError();
  if (!gradient || gradient.get() == Py_None) return;
  if (recording_->looks_for_overflow())
    return overflow_->CheckParameter(*known, parameter, gradient.get());
  Arrived& arrived = arrived_[module];
  if (arrived.json.count(parameter) > 0) Write(*known, &arrived);
  if (arrived.json.empty())
    arrived.entry =
        ComposeEntryName(known->stem, recording_->session->NextCall(known->gradient_counter),
                         "parameters_grad", true);
  std::string& json = arrived.json[parameter];
  std::string file;
  if (recording_->Stores(arrived.entry))
    file = dump::SafeFileName(arrived.entry + "." + parameter, ".pt");
  AppendTensorJson(&json, gradient.get(), recording_->options,
                   recording_->StyleOf(arrived.entry, true), file);
  if (arrived.json.size() == known->parameters.size()) Write(*known, &arrived);
}

void ParameterGradients::WriteAll() {
  for (const PyRef& module : modules_->in_order()) {
    const auto it = arrived_.find(module.get());
    if (it != arrived_.end()) Write(*modules_->Find(module.get()), &it->second);
  }
}

void ParameterGradients::Write(const NamedModule& module, Arrived* arrived) {
  if (arrived->json.empty()) return;
  if (recording_->session->filter().WantsEntry(arrived->entry)) {
    dump::EntryBuilder builder;
    builder.Begin(arrived->entry);
    for (const std::string& parameter : module.parameters) {
      const auto it = arrived->json.find(parameter);
      if (it == arrived->json.end()) continue;
      builder.BeginSlot(parameter, "", '[');
      builder.Piece(it->second);
      builder.EndSlot(']');
    }
    recording_->session->Record({.entry = builder.Finish(), .name = arrived->entry});
  }
  arrived->json.clear();
}

}  // namespace msprobe::capture
