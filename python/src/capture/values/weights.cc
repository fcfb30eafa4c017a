#include "capture/values/weights.h"

#include <algorithm>

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/named_tensors.h"
#include "engine/base/text.h"
#include "engine/dump/write/entry_json.h"

namespace msprobe::capture {

void WeightsFile::Read(std::string_view prefix, PyObject* model, DeviceStats* device,
                       KnownNumbers* known) {
  const Interposer::Pause pause;
  const Framework& framework = Framework::Get();
  ValueOptions options;
  options.device = device;
  options.known = known;
  ReadNamed(prefix, model, framework.named_parameters, options);
  if (framework.named_buffers != nullptr)
    ReadNamed(prefix, model, framework.named_buffers, options);
  ClearError();
}

void WeightsFile::ReadNamed(std::string_view prefix, PyObject* model, const char* method,
                            const ValueOptions& options) {
  const Framework& framework = Framework::Get();
  for (const auto& [name, tensor] : NamedTensors(model, method)) {
    TensorValue value = RecordTensor(tensor.get(), options, {}, "");
    // MindSpore's moving_mean is a parameter as well: the comparison has to tell it from a weight.
    if (!framework.is_torch()) value.requires_grad = framework.ParameterRequiresGrad(tensor.get());
    weights_.emplace_back(std::string(prefix) + name, std::move(value));
  }
  ClearError();
}

void WeightsFile::Resolve(const std::vector<std::pair<int64_t, kernels::Stats>>& known) {
  for (auto& [name, value] : weights_) {
    if (value.numbers != TensorValue::Numbers::kDeferred) continue;
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& one) { return one.first == value.ticket; });
    if (found == known.end()) continue;
    value.stats = found->second;
    value.numbers = TensorValue::Numbers::kFromDevice;
  }
}

bool WeightsFile::waits() const {
  return std::any_of(weights_.begin(), weights_.end(), [](const auto& weight) {
    return weight.second.numbers == TensorValue::Numbers::kDeferred;
  });
}

std::string WeightsFile::Take() {
  std::string text = "{";
  for (const auto& [name, value] : weights_) {
    text += text.size() > 1 ? ",\n" : "\n";
    AppendJsonString(&text, name);
    text += ": ";
    dump::AppendTensorJson(&text, value);
  }
  weights_.clear();
  return text + "\n}\n";
}

}  // namespace msprobe::capture
