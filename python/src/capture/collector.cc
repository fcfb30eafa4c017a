#include "capture/collector.h"

#include <algorithm>

#include "capture/interpose_function.h"
#include "capture/torch_api.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

std::string Numbered(const std::string& stem, int64_t number, std::string_view direction,
                     bool is_module) {
  std::string name = stem;
  if (is_module) {
    name += direction;
    name += '.';
    AppendInteger(&name, number);
  } else {
    AppendInteger(&name, number);
    name += '.';
    name += direction;
  }
  return name;
}

std::string_view ExceptionName(PyObject* type) {
  return type != nullptr && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type)->tp_name
                                               : "unknown";
}

// sys.exception(), borrowed, for comparison.
PyObject* HandledException() {
  PyObject *type, *value, *traceback;
  PyErr_GetExcInfo(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return value == Py_None ? nullptr : value;
}

}  // namespace

Collector& Collector::Get() {
  static Collector* instance =
      new Collector;  // never destroyed: hooks may outlive static destructors
  return *instance;
}

Collector::ThreadState& Collector::Thread() {
  // Entries still open when a thread ends hold Python references that cannot be given back then:
  // left behind.
  struct Holder {
    ThreadState* state = new ThreadState;
    ~Holder() {
      if (state->modules.empty()) delete state;
    }
  };
  thread_local Holder holder;
  return *holder.state;
}

void Collector::Configure(Config config) {
  session_ = std::make_unique<Session>(std::move(config));
  const Config& c = session_->config();
  apis_wanted_ = c.level == Level::kL1 || c.level == Level::kMix;
  modules_wanted_ = c.level == Level::kL0 || c.level == Level::kMix;
  options_.crc32 = c.summary_mode == SummaryMode::kMd5;
  options_.store = [this](const std::string& file, const TensorView& view) {
    return session_->Store(file, view);
  };
}

uint32_t Collector::CounterFor(const std::string& stem) {
  return counters_.try_emplace(stem, static_cast<uint32_t>(counters_.size())).first->second;
}

std::string Collector::AddApi(const std::string& prefix, PyObject* owner, const std::string& name,
                              bool output_is_arguments) {
  PyRef holder = PyRef::Borrow(owner), target = holder;
  std::vector<std::string_view> parts = Split(name, '.');
  PyRef attribute;
  for (const std::string_view part : parts) {
    holder = target;
    attribute = PyRef::Steal(
        PyUnicode_FromStringAndSize(part.data(), static_cast<Py_ssize_t>(part.size())));
    target = PyRef::Steal(PyObject_GetAttr(holder.get(), attribute.get()));
    if (!target) {
      PyErr_Clear();
      return "this PyTorch does not have it";
    }
  }
  auto api = std::make_unique<Api>();
  api->prefix = prefix;
  api->stem = prefix + "." + std::string(parts.back()) + ".";
  api->counter = CounterFor(api->stem);
  api->output_is_arguments = output_is_arguments;
  std::string reason = Interposer::Add(holder.get(), attribute.get(), target.get(), api.get());
  if (reason.empty()) apis_.push_back(std::move(api));
  return reason;
}

void Collector::AddModule(PyObject* module, const std::string& name) {
  const auto [it, inserted] = modules_.try_emplace(module);
  if (!inserted) return;  // a module that stands in two places keeps its first name
  Py_INCREF(module);
  module_order_.push_back(module);
  std::string_view type = Py_TYPE(module)->tp_name;
  if (const size_t dot = type.rfind('.'); dot != std::string_view::npos)
    type.remove_prefix(dot + 1);
  it->second.stem = "Module." + name + "." + std::string(type) + ".";
  it->second.forward_counter = CounterFor(it->second.stem + "forward");
  it->second.gradient_counter = CounterFor(it->second.stem + "parameters_grad");
}

void Collector::AddParameter(PyObject* module, const std::string& parameter,
                             bool expects_gradient) {
  const auto it = modules_.find(module);
  if (it != modules_.end() && expects_gradient) it->second.parameters.push_back(parameter);
}

void Collector::ForgetModules() {
  modules_.clear();
  for (PyObject* module : module_order_) Py_DECREF(module);
  module_order_.clear();
}

Result<bool> Collector::Start(std::optional<int> rank) {
  MSPROBE_ASSIGN_OR_RETURN(const bool collecting, session_->Start(rank));
  sees_calls_ = collecting;
  if (collecting && session_->filter().backward) WatchBackward(true);
  if (collecting && apis_wanted_) {
    ObservedFunction::ForEachStub(
        [](PyObject* code, void* self) { static_cast<Collector*>(self)->stacks_.HideCode(code); },
        this);
    Interposer::Install(this);
  }
  return collecting;
}

Status Collector::Stop() {
  StopCalls();
  if (!session_->collecting()) return Status::Ok();
  FlushBackward();
  for (PyObject* module : module_order_) WriteGradients(&modules_.at(module));
  return session_->Stop();
}

void Collector::StopCalls() {
  sees_calls_ = false;
  Interposer::Remove();
  WatchBackward(false);
  Thread().modules.clear();
}

void Collector::Step() {
  (void)Stop();  // a failure is logged where it happens
  session_->Step();
}

std::unique_ptr<Collector::OpenCall> Collector::Begin(const std::string& stem, int64_t number,
                                                      bool is_module) {
  ThreadState& thread = Thread();
  std::unique_ptr<OpenCall> call;
  if (thread.spare.empty()) {
    call = std::make_unique<OpenCall>();
  } else {
    call = std::move(thread.spare.back());
    thread.spare.pop_back();
  }
  Filter& filter = session_->filter();
  call->builder.Begin(Numbered(stem, number, "forward", is_module));
  call->backward = Numbered(stem, number, "backward", is_module);
  if (thread.modules.empty()) {
    call->parent.clear();
    call->parent_backward.clear();
  } else {
    call->parent = thread.modules.back()->builder.name();
    call->parent_backward = thread.modules.back()->backward;
  }
  call->step = session_->step();
  call->stack = -1;
  call->module = call->handled = nullptr;
  call->output_is_arguments = false;
  // The filter follows the order of execution: every call is shown to it.
  const bool listed = is_module ? filter.EnterModule(call->builder.name())
                                : filter.WantsEntry(call->builder.name());
  call->wanted = filter.forward && listed;
  call->wants_backward = filter.backward;
  return call;
}

void Collector::Recycle(std::unique_ptr<OpenCall> call) {
  call->edges = InputEdges();
  Thread().spare.push_back(std::move(call));
}

bool Collector::Stores(const std::string& name) const {
  return session_->storing() &&
         (session_->config().task == Task::kTensor || session_->filter().WantsTensor(name));
}

bool Collector::WriteInputs(OpenCall* call, const CallArgs& args) {
  const bool record = call->wanted && session_->filter().input;
  if (!record) scratch_.Begin("");
  ValueWriter writer(record ? &call->builder : &scratch_, options_,
                     record && Stores(call->builder.name()), /*measure=*/record);
  writer.List("input_args", "input", args.self, args.positional, args.count);
  if (args.names != nullptr) {
    writer.Names("input_kwargs", "kwargs", args.names, args.positional + args.count);
  } else {
    writer.Dict("input_kwargs", "kwargs", args.dict);
  }
  if (writer.tracing()) return false;
  if (call->wants_backward) call->edges = InputEdges(writer.tensors());
  return true;
}

void Collector::NoteStack(OpenCall* call) {
  if (!call->wanted || !session_->config().extra_info) return;
  bool is_new;
  const int64_t number = stacks_.Intern(&is_new);
  call->stack = session_->NoteStack(number, call->builder.name(), [&] { return stacks_.Format(); });
}

void* Collector::Enter(const Api& api, const CallArgs& args) {
  if (!session_->collecting()) return nullptr;
  const KeepError keep;
  std::unique_ptr<OpenCall> call =
      Begin(api.stem, session_->NextCall(api.counter), /*is_module=*/false);
  call->output_is_arguments = api.output_is_arguments;
  if (api.output_is_arguments) call->wants_backward = false;
  if (!call->wanted && !call->wants_backward) {
    Recycle(std::move(call));
    return nullptr;
  }
  if (!WriteInputs(call.get(), args)) {
    session_->TakeBack(api.counter);
    Recycle(std::move(call));
    return nullptr;
  }
  NoteStack(call.get());
  return call.release();
}

void Collector::WriteArgumentsAsOutput(OpenCall* call, const CallArgs& args) {
  if (!call->wanted || !session_->filter().output) return;
  ValueWriter writer(&call->builder, options_, Stores(call->builder.name()), /*measure=*/true);
  call->builder.BeginSlot("output", "output", '[');
  for (Py_ssize_t i = 0; i < args.count; ++i) writer.Value(args.positional[i]);
  if (args.names != nullptr) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.names); ++i)
      writer.Value(args.positional[args.count + i]);
  }
  PyObject *key, *value;
  for (Py_ssize_t position = 0;
       args.dict != nullptr && PyDict_Next(args.dict, &position, &key, &value);)
    writer.Value(value);
  call->builder.EndSlot(']');
}

void Collector::WriteOutput(OpenCall* call, PyObject* output, PyObject* module) {
  const bool record = call->wanted && session_->filter().output;
  if (!record) scratch_.Begin("");
  ValueWriter writer(record ? &call->builder : &scratch_, options_,
                     record && Stores(call->builder.name()), /*measure=*/record);
  writer.Output("output", "output", output);
  const std::vector<PyObject*> outputs = writer.tensors();
  if (record && module != nullptr) {
    PyRef parameters = PyRef::Steal(PyObject_GetAttrString(module, "_parameters"));
    writer.Dict("parameters", "parameters",
                parameters && PyDict_Check(parameters.get()) ? parameters.get() : nullptr);
  }
  if (call->wants_backward)
    ArmBackward(call->edges, outputs, this, call->step, call->backward, call->parent_backward);
}

void Collector::Finish(OpenCall* call) {
  if (!call->wanted || !session_->collecting() || call->step != session_->step()) return;
  // As text, like the keys of stack.json: the earlier tool's reader stops at a number here.
  if (call->stack >= 0) call->builder.Field("stack", std::to_string(call->stack));
  session_->Record({call->builder.Finish(), call->builder.name(), call->parent, modules_wanted_});
}

void Collector::Leave(void* token, const CallArgs& args, PyObject* result) {
  std::unique_ptr<OpenCall> call(static_cast<OpenCall*>(token));
  {
    const std::string_view exception = result == nullptr ? ExceptionName(PyErr_Occurred()) : "";
    const KeepError keep;
    if (result == nullptr) {
      call->builder.Field("exception", exception);
    } else if (call->output_is_arguments) {
      WriteArgumentsAsOutput(call.get(), args);
    } else {
      WriteOutput(call.get(), result, nullptr);
    }
    Finish(call.get());
  }
  Recycle(std::move(call));
}

void Collector::EnterModule(PyObject* module, PyObject* args) {
  if (!sees_calls_ || !session_->collecting() || !modules_wanted_) return;
  const auto it = modules_.find(module);
  if (it == modules_.end() || !PyTuple_Check(args)) return;
  const Interposer::Pause pause;
  std::unique_ptr<OpenCall> call =
      Begin(it->second.stem, session_->NextCall(it->second.forward_counter), /*is_module=*/true);
  call->module = module;
  call->handled = HandledException();
  // A global pre-hook is not given the keyword arguments; the frame that calls it has them under
  // this name.
  PyObject* locals = PyEval_GetLocals();
  PyObject* kwargs =
      locals != nullptr && PyDict_Check(locals) ? PyDict_GetItemString(locals, "kwargs") : nullptr;
  if (kwargs != nullptr && !PyDict_Check(kwargs)) kwargs = nullptr;
  PyErr_Clear();
  if (!WriteInputs(call.get(), {.positional = &PyTuple_GET_ITEM(args, 0),
                                .count = PyTuple_GET_SIZE(args),
                                .dict = kwargs})) {
    session_->TakeBack(it->second.forward_counter);
    Recycle(std::move(call));
    return;
  }
  NoteStack(call.get());
  Thread().modules.push_back(std::move(call));
}

void Collector::LeaveModule(PyObject* module, PyObject* output) {
  std::vector<std::unique_ptr<OpenCall>>& open = Thread().modules;
  if (std::none_of(open.begin(), open.end(),
                   [&](const auto& call) { return call->module == module; }))
    return;
  const Interposer::Pause pause;
  while (true) {
    std::unique_ptr<OpenCall> call = std::move(open.back());
    open.pop_back();
    session_->filter().LeaveModule(call->builder.name());
    const bool ours = call->module == module;
    PyObject* handled = HandledException();
    if (!ours || (output == Py_None && handled != nullptr && handled != call->handled)) {
      call->builder.Field(
          "exception",
          ExceptionName(handled ? reinterpret_cast<PyObject*>(Py_TYPE(handled)) : nullptr));
    } else {
      WriteOutput(call.get(), output, module);
    }
    Finish(call.get());
    Recycle(std::move(call));
    if (ours) return;
  }
}

void Collector::ParameterGradient(PyObject* module, const std::string& parameter,
                                  PyObject* tensor) {
  const auto it = modules_.find(module);
  if (it == modules_.end() || !session_->collecting() || !session_->filter().backward) return;
  const Interposer::Pause pause;
  PyRef gradient = PyRef::Steal(PyObject_GetAttrString(tensor, "grad"));
  PyErr_Clear();
  if (!gradient || gradient.get() == Py_None) return;
  ModuleInfo& info = it->second;
  if (info.gradients.count(parameter) > 0) WriteGradients(&info);
  if (info.gradients.empty())
    info.gradient_entry =
        Numbered(info.stem, session_->NextCall(info.gradient_counter), "parameters_grad", true);
  std::string& json = info.gradients[parameter];
  const std::string file = SafeFileName(info.gradient_entry + "." + parameter, ".pt");
  AppendTensorJson(&json, gradient.get(), options_, Stores(info.gradient_entry) ? &file : nullptr);
  if (info.gradients.size() == info.parameters.size()) WriteGradients(&info);
}

void Collector::WriteGradients(ModuleInfo* info) {
  if (info->gradients.empty()) return;
  if (session_->filter().WantsEntry(info->gradient_entry)) {
    EntryBuilder builder;
    builder.Begin(info->gradient_entry);
    for (const std::string& parameter : info->parameters) {
      const auto it = info->gradients.find(parameter);
      if (it == info->gradients.end()) continue;
      builder.BeginSlot(parameter, "", '[');
      builder.Piece(it->second);
      builder.EndSlot(']');
    }
    session_->Record({.entry = builder.Finish(), .name = info->gradient_entry});
  }
  info->gradients.clear();
}

std::string Collector::Compose(const std::string& name, bool is_input, size_t index,
                               PyObject* gradient) {
  std::string json;
  if (!(is_input ? session_->filter().input : session_->filter().output) ||
      !TorchApi::Get().IsTensor(gradient))
    return "null";
  const Interposer::Pause pause;
  const std::string file =
      SafeFileName(name + (is_input ? ".input." : ".output.") + std::to_string(index), ".pt");
  AppendTensorJson(&json, gradient, options_, Stores(name) ? &file : nullptr);
  return json;
}

void Collector::Complete(const std::string& name, const std::string& parent,
                         const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
  if (!session_->collecting() || !session_->filter().WantsEntry(name)) return;
  EntryBuilder builder;
  builder.Begin(name);
  const auto slot = [&](const char* key, const std::vector<std::string>& values) {
    builder.BeginSlot(key, key, '[');
    for (const std::string& value : values) builder.Piece(value);
    builder.EndSlot(']');
  };
  if (session_->filter().input) slot("input", inputs);
  if (session_->filter().output) slot("output", outputs);
  session_->Record({builder.Finish(), name, parent, modules_wanted_});
}

}  // namespace msprobe::capture
