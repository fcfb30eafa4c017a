// One call of an operation on the device: the kernel of the CPU, run on aliases, now or later.
#pragma once

#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "aliases.h"
#include "faults.h"
#include "generator.h"

namespace simnpu {

// One call of an operation on the device.
class Launch {
 public:
  Launch(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), stack_(stack), schema_(op.schema()) {
    name_ = schema_.name();
    if (name_.starts_with("aten::")) name_ = name_.substr(6);
  }

  void Run() {
    const Inside inside;
    TakeArguments();
    if (on_two_devices_)
      TORCH_CHECK(false,
                  "Expected all tensors to be on the same device, but found at least two devices, "
                  "npu and cpu! "
                  "(",
                  name_, ")");
    TORCH_CHECK(kFloat64 || !has_float64_, "\"", name_, "\" not implemented for 'Double' on NPU");
    is_view_ = std::all_of(schema_.returns().begin(), schema_.returns().end(),
                           [](const c10::Argument& r) {
                             return r.alias_info() != nullptr && !r.alias_info()->isWrite();
                           }) &&
               !schema_.returns().empty();
    if (is_view_) return RunNow();  // the device has nothing to do
    Sim().Count(Sim().counts.kernels, FullName());
    if (ReturnsNumbers() || HasDataDependentShape()) {
      Sim().WaitForDevice(device_, FullName());  // as any device must
      return RunNow();
    }
    if (kAsync && RunLater()) return;
    if (kAsync)
      Sim().WaitFor(Sim().ticket());  // not counted: only this simulator cannot do it later
    RunNow();
  }

 private:
  std::string FullName() const {
    return schema_.overload_name().empty() ? name_ : name_ + "." + schema_.overload_name();
  }

  void TakeArguments() {
    const auto& arguments = schema_.arguments();
    const auto values = torch::jit::last(*stack_, arguments.size());
    bool has_host = false;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue value = values[i];
      originals_.push_back(value);
      if (value.isDevice()) {
        if (value.toDevice().type() == kNpu) {
          device_ = value.toDevice().index();
          inputs_.emplace_back(c10::Device(c10::DeviceType::CPU));
          continue;
        }
      } else if (TakesGenerator(arguments[i])) {
        generator_at_ = static_cast<int>(i);
      }
      const bool is_out = arguments[i].is_out();
      inputs_.push_back(Mapped(value, [&](const Tensor& t) {
        if (!t.defined()) return t;
        if (!IsOurs(t)) {
          has_host = has_host || t.dim() > 0;
          return kAsync ? t.clone() : t;
        }
        device_ = t.device().index();
        bytes_ += static_cast<double>(t.numel() * t.element_size());
        has_float64_ =
            has_float64_ || t.scalar_type() == at::kDouble || t.scalar_type() == at::kComplexDouble;
        ours_.push_back(t);
        // The kernel may resize it.
        if (is_out && t.numel() == 0) return at::empty({0}, t.options().device(at::kCPU));
        return Alias(t);
      }));
    }
    on_two_devices_ = has_host && !ours_.empty() && !MixesDevices();
    if (device_ < 0) device_ = current_device;
    if (generator_at_ >= 0) {
      const c10::IValue given = originals_[generator_at_];
      const at::Generator generator = given.isNone()
                                          ? DefaultGenerator(static_cast<c10::DeviceIndex>(device_))
                                          : given.toGenerator();
      TORCH_CHECK(generator.device().type() == kNpu,
                  "Expected a 'npu' device type for generator but found 'cpu'");
      inputs_[generator_at_] = generator.get<Generator>()->OfNextKernel();
    }
  }

  static bool TakesGenerator(const c10::Argument& argument) {
    const auto optional = argument.type()->cast<c10::OptionalType>();
    return (optional ? optional->getElementType() : argument.type())->kind() ==
           c10::TypeKind::GeneratorType;
  }
  // Indices may be on the host.
  bool MixesDevices() const {
    return name_.starts_with("index") || name_.starts_with("_index") || name_ == "set_";
  }
  bool ReturnsNumbers() const {
    return !ours_.empty() && std::any_of(schema_.returns().begin(), schema_.returns().end(),
                                         [](const c10::Argument& r) {
                                           return r.type()->kind() != c10::TypeKind::TensorType &&
                                                  r.type()->kind() != c10::TypeKind::ListType;
                                         });
  }
  bool HasDataDependentShape() const {
    static const std::set<std::string> names = {"nonzero",
                                                "masked_select",
                                                "_unique",
                                                "_unique2",
                                                "unique_dim",
                                                "unique_consecutive",
                                                "unique_dim_consecutive",
                                                "bincount",
                                                "repeat_interleave",
                                                "nonzero_static",
                                                "histc"};
    if (names.count(name_) > 0) return true;
    if (!name_.starts_with("index") && !name_.starts_with("_index")) return false;
    for (const c10::IValue& value : originals_) {
      if (!value.isOptionalTensorList()) continue;
      for (const std::optional<Tensor>& t : value.toOptionalTensorList())
        if (t.has_value() && t->defined() &&
            (t->scalar_type() == at::kBool || t->scalar_type() == at::kByte))
          return true;
    }
    return false;
  }

  double Cost(double bytes) const {
    const Costs& costs = Sim().costs;
    double flops = 0;
    const auto size = [&](size_t i, int64_t d) {
      return static_cast<double>(originals_[i].toTensor().size(d));
    };
    if (name_ == "mm") flops = 2 * size(0, 0) * size(0, 1) * size(1, 1);
    if (name_ == "addmm") flops = 2 * size(1, 0) * size(1, 1) * size(2, 1);
    if (name_ == "bmm") flops = 2 * size(0, 0) * size(0, 1) * size(0, 2) * size(1, 2);
    return std::max(costs.kernel, std::max(bytes / costs.bytes, flops / costs.flops));
  }

  // The operation that runs on the CPU in place of `op_`.
  c10::OperatorHandle OnCpu(Stack* inputs) const {
    auto& dispatcher = c10::Dispatcher::singleton();
    if (name_ == "convolution_overrideable")
      return dispatcher.findSchemaOrThrow("aten::convolution", "");
    if (name_ == "convolution_backward_overrideable") {
      const Tensor weight = (*inputs)[2].toTensor();
      const bool transposed = (*inputs)[6].toBool();
      const int64_t outputs = transposed ? weight.size(1) * (*inputs)[8].toInt() : weight.size(0);
      inputs->insert(inputs->begin() + 3, c10::IValue(std::vector<int64_t>{outputs}));
      return dispatcher.findSchemaOrThrow("aten::convolution_backward", "");
    }
    return op_;
  }

  // Runs the kernel of the CPU; its results.
  static Stack Compute(const c10::OperatorHandle& op, const std::string& name, Stack inputs) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const at::DisableRecordFunctionGuard unseen;  // profilers do not see inside a kernel
    Stack results = inputs;
    if (name == "native_dropout") {  // its kernel draws from the generator of the host
      const double p = inputs[1].toDouble();
      const bool train = inputs[2].isNone() || inputs[2].toBool();
      const Tensor x = inputs[0].toTensor();
      const Tensor mask = at::empty_like(x, at::TensorOptions(at::kBool))
                              .bernoulli_(train ? 1 - p : 1, inputs[3].toGenerator());
      results = {x * mask * (train && p < 1 ? 1 / (1 - p) : 1), mask};
    } else {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &results);
    }
    auto fault = Faults().find(name.substr(0, name.find('.')));
    if (fault == Faults().end()) fault = Faults().find("*");
    for (const c10::IValue& result : results) {
      if (!result.isTensor() || !result.toTensor().defined()) continue;
      if (fault != Faults().end()) {
        Spoil(fault->first, fault->second, inputs, result.toTensor());
        if (fault->first != "*") break;
      }
    }
    if (Sim().watches_overflow) {
      for (const c10::IValue& result : results)
        if (result.isTensor() && result.toTensor().defined() &&
            result.toTensor().is_floating_point() &&
            !at::isfinite(result.toTensor()).all().item<bool>())
          ++Sim().overflows;
    }
    return results;
  }

  Stack TakenInputs() {
    Stack inputs = inputs_;
    if (name_ == "native_dropout")
      inputs.emplace_back(DefaultGenerator(static_cast<c10::DeviceIndex>(device_))
                              .get<Generator>()
                              ->OfNextKernel());
    return inputs;
  }

  // A result is an argument, a view of one, or new.
  Tensor Given(const Tensor& result, size_t position) {
    if (!result.defined()) return result;
    if (TheMemory().IsShadow(result.storage().data())) {
      for (const Tensor& t : ours_) {
        if (TheMemory().Shadow(t.storage().data()) != result.storage().data()) continue;
        Tensor view = at::detail::make_tensor<c10::TensorImpl>(
            c10::Storage(t.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
            result.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(),
                                                          result.storage_offset());
        return view;
      }
    }
    const at::DisableRecordFunctionGuard unseen;
    Tensor made = EmptyStrided(result.sizes(), result.strides(), result.scalar_type(), device_);
    Alias(made).copy_(result);
    bytes_ += static_cast<double>(made.numel() * made.element_size());
    return made;
  }

  // The argument that is result number `i`; -1: it is no argument.
  int ArgumentOf(size_t i) const {
    const auto* info = schema_.returns()[i].alias_info();
    if (info == nullptr || !info->isWrite()) return -1;
    for (size_t a = 0; a < schema_.arguments().size(); ++a) {
      const auto* other = schema_.arguments()[a].alias_info();
      if (other != nullptr && other->beforeSets() == info->beforeSets()) return static_cast<int>(a);
    }
    return -1;
  }

  void RunNow() {
    Stack inputs = TakenInputs();
    const c10::OperatorHandle op = OnCpu(&inputs);
    Stack results = Compute(op, name_, inputs);
    // Arguments that were empty and have been resized.
    for (size_t a = 0; a < schema_.arguments().size(); ++a) {
      if (!schema_.arguments()[a].is_out() || !originals_[a].isTensor()) continue;
      const Tensor out = originals_[a].toTensor(), made = inputs[a].toTensor();
      if (!IsOurs(out) || out.numel() != 0 || made.numel() == 0) continue;
      out.resize_(made.sizes());
      Alias(out).copy_(made);
    }
    Stack given;
    for (size_t i = 0; i < results.size(); ++i) {
      const int argument = ArgumentOf(i);
      if (argument >= 0)
        given.push_back(originals_[argument]);
      else
        given.push_back(Mapped(results[i], [&](const Tensor& t) { return Given(t, i); }));
    }
    Finish(std::move(given));
    if (!is_view_) Sim().Charge(device_, Cost(bytes_));
  }

  // False: what its results look like is not known before it has run.
  bool RunLater() {
    // Of these, what knows the shapes is Python code, which a program would see; or it is wrong.
    static const std::set<std::string> at_once = {
        "native_batch_norm", "native_layer_norm", "native_layer_norm_backward",
        "native_batch_norm_backward", "native_group_norm"};
    if (at_once.count(name_) > 0) return false;
    for (size_t a = 0; a < schema_.arguments().size(); ++a)
      if (schema_.arguments()[a].is_out() && originals_[a].isTensor() &&
          originals_[a].toTensor().numel() == 0)
        return false;
    Stack given;
    std::vector<Tensor> targets(schema_.returns().size());
    bool all_arguments = true;
    for (size_t i = 0; i < schema_.returns().size(); ++i)
      all_arguments = all_arguments && ArgumentOf(i) >= 0;
    if (all_arguments) {
      for (size_t i = 0; i < schema_.returns().size(); ++i)
        given.push_back(originals_[ArgumentOf(i)]);
    } else {
      Stack like;
      for (const c10::IValue& value : originals_) {
        like.push_back(Mapped(value, [](const Tensor& t) {
          return t.defined()
                     ? at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta))
                     : t;
        }));
        if (value.isDevice()) like.back() = c10::Device(c10::DeviceType::Meta);
      }
      try {
        const at::AutoDispatchBelowADInplaceOrView guard;
        op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &like);
      } catch (const std::exception&) {
        return false;  // no such kernel
      }
      for (size_t i = 0; i < like.size(); ++i) {
        if (ArgumentOf(i) >= 0) {
          given.push_back(originals_[ArgumentOf(i)]);
          continue;
        }
        if (!like[i].isTensor()) return false;
        const Tensor meta = like[i].toTensor();
        if (meta.defined()) {
          Tensor made = EmptyStrided(meta.sizes(), meta.strides(), meta.scalar_type(), device_);
          targets[i] = Alias(made);
          bytes_ += static_cast<double>(made.numel() * made.element_size());
          given.emplace_back(std::move(made));
        } else {
          given.emplace_back(Tensor());
        }
      }
    }
    Stack inputs = TakenInputs();
    const c10::OperatorHandle op = OnCpu(&inputs);
    Finish(std::move(given));
    Sim().Submit(device_, Cost(bytes_),
                 [op, name = name_, inputs = std::move(inputs), targets = std::move(targets)] {
                   const Stack results = Compute(op, name, inputs);
                   for (size_t i = 0; i < targets.size() && i < results.size(); ++i)
                     if (targets[i].defined()) targets[i].copy_(results[i].toTensor());
                 });
    return true;
  }

  void Finish(Stack given) {
    torch::jit::drop(*stack_, schema_.arguments().size());
    for (c10::IValue& value : given) stack_->push_back(std::move(value));
  }

  const c10::OperatorHandle op_;
  Stack* const stack_;
  const c10::FunctionSchema& schema_;
  std::string name_;
  Stack originals_, inputs_;
  std::vector<Tensor> ours_;
  int device_ = -1, generator_at_ = -1;
  bool on_two_devices_ = false, has_float64_ = false, is_view_ = false;
  double bytes_ = 0;
};

inline void Fallback(const c10::OperatorHandle& op, Stack* stack) {
  const Inside inside;  // until the tensors of the launch are gone
  Launch(op, stack).Run();
}

}  // namespace simnpu
