#include "capture/stability/free_benchmark.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "capture/python/torch_api.h"
#include "capture/values/hold_elements.h"
#include "capture/values/tensor_access.h"
#include "engine/base/log.h"
#include "engine/model/names.h"
#include "engine/stability/limits.h"

namespace msprobe::capture {
namespace {

using dump::Perturbation;

constexpr int64_t kLargeBytes = 1 << 20;  // from this size on: all threads, and without the GIL
// Graphs that are kept at most: each holds what its operation saves for backward.
constexpr size_t kMostGraphs = 4096;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// "add_" of "Tensor.add_.".
std::string_view FunctionOf(const Api& api) {
  std::string_view name = api.stem;
  name.remove_suffix(1);
  return name.substr(name.rfind('.') + 1);
}

// Whether a function of this name writes into its first argument.
bool IsInPlace(std::string_view function) {
  if (function.ends_with("__"))
    return function == "__setitem__" || (function.starts_with("__i") && function != "__invert__" &&
                                         function != "__index__" && function != "__int__");
  return function.ends_with("_");
}

// The framework's own functions use its generators and change nothing but their arguments.
bool IsOfProgram(const Api& api) {
  for (const std::string_view own : {"Functional", "Tensor", "Torch", "VF", "Aten", "NPU"}) {
    if (api.prefix == own) return false;
  }
  return true;
}

bool IsHalfTensor(PyObject* tensor) {
  const TensorAccess access(tensor, Fetch::kNever);
  return (access.readable() || access.on_device()) &&
         (access.element_type() == DType::kFloat16 || access.element_type() == DType::kBFloat16);
}

PyRef DeviceTypeOf(PyObject* tensor) {
  const PyRef device = PyRef::Steal(PyObject_GetAttrString(tensor, "device"));
  PyRef type = device ? PyRef::Steal(PyObject_GetAttrString(device.get(), "type")) : PyRef();
  ClearError();
  return type ? std::move(type) : PyRef::Steal(PyUnicode_FromString("cpu"));
}

bool IsAutocast(PyObject* tensor) {
  PyObject* const ask = Named("torch.is_autocast_enabled");
  const PyRef type = DeviceTypeOf(tensor);
  const PyRef answer = ask ? PyRef::Steal(PyObject_CallOneArg(ask, type.get())) : PyRef();
  ClearError();  // before PyTorch 2.4 it has no argument
  return answer && answer.get() == Py_True;
}

// torch.autocast(device type, enabled=False): its arguments.
PyRef AutocastArguments(PyObject* tensor) {
  return PyRef::Steal(PyTuple_Pack(1, DeviceTypeOf(tensor).get()));
}
PyRef NotEnabled() { return PyRef::Steal(Py_BuildValue("{s:O}", "enabled", Py_False)); }

bool SharesMemory(PyObject* a, PyObject* b) {
  const auto address = [](PyObject* tensor) -> int64_t {
    PyRef storage = CallMethod(tensor, "untyped_storage");
    if (!storage) storage = CallMethod(tensor, "storage");  // before PyTorch 2.0
    const PyRef pointer = storage ? CallMethod(storage.get(), "data_ptr") : PyRef();
    const int64_t value = pointer ? PyLong_AsLongLong(pointer.get()) : 0;
    ClearError();
    return value;
  };
  return a == b || address(a) == address(b);
}

}  // namespace

void FreeBenchmark::Configure() {
  on_ = recording_->config().task == Task::kFreeBenchmark;
  const double share = rules().fix ? 0 : rules().budget;
  if (on_ && share != share_) budget_ = stability::SamplingBudget(share_ = share);
}

void FreeBenchmark::Begin(std::optional<int> rank) {
  rank_ = rank.value_or(0);
  opened_ = false;
}

// The first call of a step makes the folder.
bool FreeBenchmark::OpenReport() {
  if (opened_) return true;
  dump::Session& session = *recording_->session;
  if (!session.OpenFiles()) return false;
  const Status status = report_.Open(session.folder());
  if (!status.ok()) session.Fail(status);
  return opened_ = status.ok();
}

void FreeBenchmark::EndStep() {
  if (!on_) return;
  gradients_.Forget();
  budget_.EndStep(Seconds());
  ++steps_;
  preheated_ = 0;
  calls_before_ = std::exchange(calls_, 0);
}

void FreeBenchmark::Report() {
  if (!on_ || std::exchange(said_, true)) return;
  for (const Message& line : report_.Lines(rules(), budget_.period())) Log(LogLevel::kInfo, line);
}

std::optional<double> FreeBenchmark::LimitOf(std::string_view name) const {
  return rules().preheat ? limits_.Of(ParseEntryName(name).api) : std::nullopt;
}

Message FreeBenchmark::WhyNotApi(const Api& api) const {
  if (api.collective != nullptr) return "communicate"_t;
  if (api.kind == Api::kFunction) return "belong to a torch.autograd.Function"_t;
  if (api.output_is_arguments) return "return their results in their arguments"_t;
  if (ReturnsUnwrittenMemory(FunctionOf(api)) || FunctionOf(api).starts_with("resize"))
    return "return memory that nobody has written"_t;
  if (rules().backward && IsInPlace(FunctionOf(api))) return "change their arguments"_t;
  return {};
}

// Each step of the preheat takes `max_sample` calls, which begin after those of the step before.
bool FreeBenchmark::TakesPreheat() {
  const int64_t first = steps_ * rules().max_sample % std::max<int64_t>(1, calls_before_);
  return calls_++ >= first && preheated_ < rules().max_sample;
}

void* FreeBenchmark::Enter(const Api& api, const CallArgs& args) {
  call_place.place = Place::kOutside;
  if (!recording_->sees_calls || !recording_->session->collecting()) return nullptr;
  if (!api.recorded) {
    (void)recording_->session->calls().Next(api.counter);
    return nullptr;
  }
  const KeepError keep;
  const QuietTorch quiet;
  return recording_->Guarded([&] { return EnterCall(api, args); });
}

void* FreeBenchmark::EnterCall(const Api& api, const CallArgs& args) {
  thread_local std::string name, backward;  // reused: most calls are not chosen
  recording_->session->calls().Name(api.stem, recording_->session->calls().Next(api.counter), false,
                                    &name, &backward);
  if (!recording_->session->filter().WantsEntry(name) || !OpenReport()) return nullptr;
  if (Message why = WhyNotApi(api); !why.empty()) return Skip(why), nullptr;
  const double begin = Seconds();
  if (preheating() && !TakesPreheat()) return report_.NotSampled(), nullptr;
  if (budget_.Choose(name, begin) != stability::SamplingBudget::Choice::kSampled)
    return report_.NotSampled(), nullptr;
  auto call = std::make_unique<Chosen>();
  call->name = name;
  call->backward = backward;
  call->held = HeldCall(args);
  if (call->held.IsTraced() || recording_->stacks.InCompiledCode()) {
    recording_->session->calls().ReturnCallNumber(api.counter);
    return nullptr;
  }
  if (Message why = call->held.WhyNot(); !why.empty()) return Skip(why), nullptr;
  call->api = &api;
  call->collectives = nested_collectives;
  bool is_new;
  call->site = recording_->stacks.Intern(&is_new);
  call->before = RandomState::Take(call->held.tensors(), call->held.generators(), IsOfProgram(api));
  PyObject* const inplace = call->held.Keyword("inplace");
  if (rules().backward) {
    call->edges = InputEdges(call->held.tensors());
  } else if (IsInPlace(FunctionOf(api)) || changing_.count(&api) > 0 || inplace == Py_True ||
             call->held.Keyword("out") != nullptr) {
    const Context no_grad("torch.no_grad");
    const OwnOperations own;
    call->held.CopyTensors();
  }
  budget_.Spend(Seconds() - begin);
  return call.release();
}

void FreeBenchmark::Leave(void* token, const CallArgs&, PyObject* result) {
  const KeepError keep;  // also while the call is freed
  const QuietTorch quiet;
  const std::unique_ptr<Chosen> call(static_cast<Chosen*>(token));
  if (result == nullptr || !recording_->session->collecting()) return;
  recording_->Guarded([&] {
    const double begin = Seconds();
    if (Message why = LeaveCall(call.get(), result); !why.empty()) Skip(why);
    recording_->TakeArrived();
    budget_.Spend(Seconds() - begin);
  });
}

Message FreeBenchmark::LeaveCall(Chosen* call, PyObject* result) {
  const OwnOperations own;
  if (nested_collectives != call->collectives) return "communicate"_t;
  if (call->held.ChangedArguments()) {
    changing_.insert(call->api);
    if (!call->held.has_copies()) return "change their arguments"_t;
  }
  const RandomState after = call->before.Now();
  const bool draws = !after.SameAs(call->before);
  if (draws && rules().other_precision())
    return "draw random numbers, which differ in another precision"_t;
  return rules().backward ? ExpectGradients(call, after, result) : RunAgain(call, after, result);
}

// Runs the call with the numbers of the generators that the program's call has got. They are set to
// `after` again: the training draws the numbers that it would have drawn.
PyRef FreeBenchmark::RunWith(const Chosen& call, const RandomState& after, ChangedInput* input,
                             std::vector<PyRef>* changed) {
  // In the program's grad mode, with leaves for tensors that require a gradient: some operations
  // compute in another way without gradients (LSTM). A leaf cannot be changed in place.
  const Context no_grad(call.held.has_copies() ? "torch.no_grad" : "");
  const HeldCall::Change as_leaf = [&](PyObject* tensor) {
    const bool is_leaf = !call.held.has_copies() && TorchApi::Get().RequiresGrad(tensor);
    PyRef made = input->Of(tensor, /*may_share=*/is_leaf && rules().backward);
    if (made && is_leaf) (void)CallMethod(made.get(), "requires_grad_");
    return made;
  };
  const Perturbation perturbation = input->perturbation();
  const bool other =
      perturbation == Perturbation::kImprovePrecision || perturbation == Perturbation::kToCpu;
  // Autocast would round the better numbers again.
  const Context autocast(other ? "torch.autocast" : "",
                         AutocastArguments(call.held.tensors().front()), NotEnabled());
  if (!after.SameAs(call.before)) call.before.Restore(/*of_program=*/false);
  PyRef result = call.held.Run(as_leaf, changed);
  const bool of_program = IsOfProgram(*call.api);
  if (of_program || !after.Now().SameAs(after)) after.Restore(of_program);
  return result;
}

std::vector<FreeBenchmark::Pair> FreeBenchmark::PairsOf(const Chosen& call, PyObject* first,
                                                        PyObject* again,
                                                        const std::vector<PyRef>& changed) const {
  std::vector<PyObject*> a = TensorsIn(first), b = TensorsIn(again);
  if (a.empty() && b.empty() && call.held.has_copies()) {  // __setitem__ returns nothing
    a = call.held.tensors();
    for (const PyRef& each : changed) b.push_back(each.get());
  }
  std::vector<Pair> pairs;
  for (size_t i = 0; a.size() == b.size() && i < a.size(); ++i)
    pairs.push_back({a[i], b[i], a.size() == 1 ? -1 : static_cast<int64_t>(i)});
  return pairs;
}

Message FreeBenchmark::RunAgain(Chosen* call, const RandomState& after, PyObject* result) {
  ChangedInput input(rules().perturbation);
  std::vector<PyRef> changed;
  const PyRef again = RunWith(*call, after, &input, &changed);
  const std::vector<PyObject*> outputs = TensorsIn(result);
  bool applied = input.applied();
  if (!applied && rules().perturbation == Perturbation::kImprovePrecision && !outputs.empty())
    applied = IsHalfTensor(outputs.front()) && IsAutocast(outputs.front());
  if (!applied) return input.why_not();
  if (!again) return "fail when they run again"_t;
  const std::vector<Pair> pairs = PairsOf(*call, result, again.get(), changed);
  if (pairs.empty()) return "return no tensor, or other ones when they run again"_t;
  stability::Question question{.perturbation = rules().perturbation,
                               .perturbed = input.dtype(),
                               .limit = LimitOf(call->name)};
  if (preheating()) {
    ++preheated_;
    if (!question.limit) question.limit = stability::kFirstLimit;
    const Pair& first = pairs.front();
    const TensorAccess x(first.first), y(first.again);
    if (!x.readable() || !y.readable()) return "have results that cannot be compared"_t;
    limits_.Note(ParseEntryName(call->name).api,
                 stability::Judge(question, y.view(), x.view()).consistent,
                 AgreesWithCpu(*call, after, result), stability::LimitsOf(x.view().dtype).ratio);
    return "set limits (\"if_preheat\")"_t;
  }
  if (!JudgePairs(pairs, call->name, call->site, question))
    return "have results that cannot be compared"_t;
  if (rules().fix) Fix(*call, pairs);
  return {};
}

bool FreeBenchmark::AgreesWithCpu(const Chosen& call, const RandomState& after, PyObject* result) {
  ChangedInput input(Perturbation::kToCpu);
  std::vector<PyRef> changed;
  const PyRef again = RunWith(call, after, &input, &changed);
  if (!again) return true;
  for (const Pair& pair : PairsOf(call, result, again.get(), changed)) {
    const TensorAccess x(pair.first), y(pair.again);
    if (!x.readable() || !y.readable()) continue;
    if (!stability::Judge({.perturbation = Perturbation::kToCpu}, y.view(), x.view()).consistent)
      return false;
  }
  return true;
}

bool FreeBenchmark::JudgePairs(const std::vector<Pair>& pairs, const std::string& name,
                               int64_t site, const stability::Question& question) {
  const auto comparison = std::make_shared<Comparison>();
  comparison->name = name;
  comparison->site = site;
  comparison->step = recording_->session->step();
  comparison->question = question;
  const auto may_be_read = [](const TensorAccess& access) {
    return (access.readable() || access.on_device()) &&
           DTypeKindOf(access.element_type()) != DTypeKind::kComplex;
  };
  bool judged = false;
  for (const Pair& pair : pairs) {
    TensorAccess first(pair.first, Fetch::kNever), again(pair.again, Fetch::kNever);
    if (!may_be_read(first) || !(again.readable() || again.on_device())) continue;
    judged = true;
    const bool is_here = first.readable() && again.readable();
    // One that is known at once has its row after those of the calls before.
    if (!(is_here && recording_->late.Knows({})) &&
        Hold(first, again, pair.index, comparison.get()))
      continue;
    if (first.on_device()) first.FetchNow();
    if (again.on_device()) again.FetchNow();
    if (first.readable() && again.readable())
      JudgePair(comparison.get(), first.view(), again.view(), first.dtype(), pair.index);
  }
  if (judged)
    recording_->late.Add(comparison->needs, [this, comparison] { Decide(comparison.get()); });
  return judged;
}

bool FreeBenchmark::Hold(const TensorAccess& first, const TensorAccess& again, int64_t index,
                         Comparison* comparison) {
  const auto hold = [&](const TensorAccess& access) {
    auto elements = HoldElements(access, &recording_->device, &comparison->needs);
    if (elements != nullptr) return elements;
    recording_->FetchInStep();
    return HoldElements(access, &recording_->device, &comparison->needs);
  };
  Comparison::Results results{hold(first), hold(again), std::string(first.dtype()), index};
  if (results.first == nullptr || results.again == nullptr) return false;
  comparison->results.push_back(std::move(results));
  return true;
}

void FreeBenchmark::Decide(Comparison* comparison) {
  for (const Comparison::Results& each : comparison->results) {
    const TensorView first = each.first->view(), again = each.again->view();
    // Null: it did not come from its device.
    if (first.data != nullptr && again.data != nullptr)
      JudgePair(comparison, first, again, each.dtype, each.index);
  }
  report_.Judged();
  if (!comparison->consistent) report_.Inconsistent();
}

void FreeBenchmark::JudgePair(Comparison* comparison, const TensorView& first,
                              const TensorView& again, std::string_view dtype, int64_t index) {
  const auto bytes = first.numel() * static_cast<int64_t>(DTypeSize(first.dtype));
  stability::Verdict verdict;
  if (bytes < kLargeBytes) {
    verdict = stability::Judge(comparison->question, again, first);
  } else {
    const ReleasedGil released;
    verdict = stability::Judge(comparison->question, again, first, &ThreadPool::Default());
  }
  if (verdict.consistent) return;
  comparison->consistent = false;
  const stability::StabilityRow row{.rank = rank_,
                                    .perturbation = rules().name(),
                                    .backward = rules().backward,
                                    .step = comparison->step,
                                    .call = comparison->name,
                                    .verdict = std::move(verdict),
                                    .dtype = dtype,
                                    .shape = {first.dims().begin(), first.dims().end()},
                                    .output_index = index};
  if (const Status status = report_.Add(row, recording_->WhereIs(comparison->site)); !status.ok())
    recording_->session->Fail(status);
}

// Through `.data`: autograd does not see a change, and what it has saved of a result is the better
// one.
void FreeBenchmark::Fix(const Chosen& call, const std::vector<Pair>& pairs) {
  const Context no_grad("torch.no_grad");
  bool fixed = false;
  for (const Pair& pair : pairs) {
    bool is_argument = false;  // or a view of one: it has the same numbers
    for (PyObject* tensor : call.held.tensors()) is_argument |= SharesMemory(tensor, pair.first);
    const PyRef data =
        is_argument ? PyRef() : PyRef::Steal(PyObject_GetAttrString(pair.first, "data"));
    fixed |= data && CallMethod(data.get(), "copy_", PyRef::Borrow(pair.again));
    ClearError();
  }
  if (fixed) report_.Fixed();
}

Message FreeBenchmark::ExpectGradients(Chosen* call, const RandomState& after, PyObject* result) {
  const std::vector<PyObject*> outputs = TensorsIn(result);
  const auto requires_grad = [](PyObject* tensor) { return TorchApi::Get().RequiresGrad(tensor); };
  bool has_gradient = false;
  for (PyObject* tensor : outputs) has_gradient |= requires_grad(tensor);
  if (!has_gradient) return "have no gradient"_t;
  if (gradients_.waiting() >= kMostGraphs) return "would keep more than 4096 graphs"_t;
  RepeatedGradient repeat{.name = call->backward, .site = call->site};
  // The second run computes as the first one; what is changed are the incoming gradients.
  ChangedInput input(rules().other_precision() ? rules().perturbation : Perturbation::kNoChange);
  const PyRef again = RunWith(*call, after, &input, &repeat.leaves);
  if (!input.applied() && !(IsHalfTensor(outputs.front()) && IsAutocast(outputs.front())))
    return input.why_not();
  if (!again) return "fail when they run again"_t;
  for (PyObject* tensor : TensorsIn(again.get()))
    repeat.outputs.push_back(requires_grad(tensor) ? PyRef::Borrow(tensor) : PyRef());
  if (repeat.outputs.size() != outputs.size())
    return "return no tensor, or other ones when they run again"_t;
  return gradients_.Expect(std::move(repeat), call->edges, outputs) ? Message()
                                                                    : "have no gradient"_t;
}

void FreeBenchmark::JudgeGradients(const RepeatedGradient& call) {
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  recording_->Guarded([&] {
    const double begin = Seconds();
    if (Message why = JudgeArrived(call); !why.empty()) Skip(why);
    recording_->TakeArrived();
    budget_.Spend(Seconds() - begin);
  });
}

Message FreeBenchmark::JudgeArrived(const RepeatedGradient& call) {
  const OwnOperations own;
  ChangedInput input(rules().perturbation);
  std::vector<PyObject*> tensors;
  const PyRef outputs = PyRef::Steal(PyList_New(0)), incoming = PyRef::Steal(PyList_New(0));
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i] || !call.incoming[i]) continue;
    const PyRef gradient = rules().other_precision()
                               ? CallMethod(call.incoming[i].get(), "to", call.outputs[i])
                               : input.Of(call.incoming[i].get());
    if (!gradient) return "have gradients that cannot be changed"_t;
    tensors.push_back(call.outputs[i].get());
    PyList_Append(outputs.get(), call.outputs[i].get());
    PyList_Append(incoming.get(), gradient.get());
  }
  if (tensors.empty()) return "got no gradient"_t;
  if (!rules().other_precision() && !input.applied()) return input.why_not();
  std::vector<size_t> slots;
  const PyRef leaves = PyRef::Steal(PyList_New(0));
  for (size_t i = 0; i < call.leaves.size(); ++i) {
    if (!call.outgoing[i] || !TorchApi::Get().RequiresGrad(call.leaves[i].get())) continue;
    slots.push_back(i);
    PyList_Append(leaves.get(), call.leaves[i].get());
  }
  PyObject* const grad = Named("torch.autograd.grad");
  if (slots.empty() || grad == nullptr) return "got no gradient"_t;
  PyRef again;
  {
    const RandomState before = RandomState::Take(tensors, {}, /*of_program=*/true);
    const PyRef arguments =
        PyRef::Steal(PyTuple_Pack(3, outputs.get(), leaves.get(), incoming.get()));
    const PyRef keywords = PyRef::Steal(Py_BuildValue("{s:O}", "allow_unused", Py_True));
    again = PyRef::Steal(PyObject_Call(grad, arguments.get(), keywords.get()));
    ClearError();
    before.Restore(/*of_program=*/true);
  }
  if (!again || !PyTuple_Check(again.get())) return "fail when they run again"_t;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* const gradient = PyTuple_GET_ITEM(again.get(), static_cast<Py_ssize_t>(i));
    if (TorchApi::Get().IsTensor(gradient))
      pairs.push_back({call.outgoing[slots[i]].get(), gradient,
                       slots.size() == 1 ? -1 : static_cast<int64_t>(slots[i])});
  }
  const stability::Question question{.perturbation = rules().perturbation,
                                     .gradients = true,
                                     .perturbed = input.dtype(),
                                     .limit = LimitOf(call.name)};
  const bool judged = JudgePairs(pairs, call.name, call.site, question);
  return judged ? Message() : "have results that cannot be compared"_t;
}

}  // namespace msprobe::capture
