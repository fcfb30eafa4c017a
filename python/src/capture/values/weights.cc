#include "capture/values/weights.h"

#include "capture/calls/interpose.h"
#include "capture/devices/device_reader.h"
#include "capture/python/framework.h"
#include "capture/python/named_tensors.h"
#include "engine/base/text.h"
#include "engine/dump/write/entry_json.h"

namespace msprobe::capture {

void WeightsFile::Read(std::string_view prefix, PyObject* model, const ValueOptions& options) {
  const Interposer::Pause pause;
  const Framework& framework = Framework::Get();
  ReadNamed(prefix, model, framework.named_parameters, options);
  if (framework.named_buffers != nullptr)
    ReadNamed(prefix, model, framework.named_buffers, options);
  ClearError();
}

void WeightsFile::ReadNamed(std::string_view prefix, PyObject* model, const char* method,
                            const ValueOptions& options) {
  const Framework& framework = Framework::Get();
  const DeviceReader::Together together(options.device);
  for (const auto& [name, tensor] : NamedTensors(model, method)) {
    TensorValue value = RecordTensor(tensor.get(), options, {}, "");
    // MindSpore's moving_mean is a parameter as well: the comparison has to tell it from a weight.
    if (!framework.is_torch()) value.requires_grad = framework.ParameterRequiresGrad(tensor.get());
    if (value.numbers == TensorValue::Numbers::kDeferred)
      waiting_.emplace(value.ticket, weights_.size());
    weights_.emplace_back(std::string(prefix) + name, std::move(value));
  }
  ClearError();
}

void WeightsFile::Resolve(const std::vector<DeferredNumbers>& arrived) {
  if (waiting_.empty()) return;
  for (const DeferredNumbers& numbers : arrived) {
    if (const auto found = waiting_.extract(numbers.ticket); !found.empty())
      weights_[found.mapped()].second.Resolve(numbers);
  }
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
  waiting_.clear();
  return text + "\n}\n";
}

}  // namespace msprobe::capture
