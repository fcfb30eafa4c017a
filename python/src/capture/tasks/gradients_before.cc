#include "capture/tasks/gradients_before.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/gradients/parameter_hooks.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "engine/model/gradients_before.h"

namespace msprobe::capture {
namespace {

bool pass_runs = false;  // needs the GIL

PyObject* PassIsOver(PyObject*, PyObject*) {
  pass_runs = false;
  Py_RETURN_NONE;
}
PyMethodDef pass_is_over = {"msprobe_pass_is_over", PassIsOver, METH_NOARGS, nullptr};

// Has `pass_runs` reset when the backward pass that runs now is over. A pass inside it (reentrant
// checkpointing) belongs to it. False where the framework does not offer that.
bool TellAtTheEnd() {
  struct Functions {
    PyRef queue, callback;
  };
  static const Functions* const functions = [] {
    auto* found = new Functions;  // never destroyed: the interpreter ends before static destructors
    const PyRef module = PyRef::Steal(PyImport_ImportModule("torch.autograd.variable"));
    const PyRef variable =
        module ? PyRef::Steal(PyObject_GetAttrString(module.get(), "Variable")) : PyRef();
    const PyRef engine =
        variable ? PyRef::Steal(PyObject_GetAttrString(variable.get(), "_execution_engine"))
                 : PyRef();
    if (engine) found->queue = PyRef::Steal(PyObject_GetAttrString(engine.get(), "queue_callback"));
    found->callback = PyRef::Steal(PyCFunction_New(&pass_is_over, nullptr));
    ClearError();
    return found;
  }();
  if (!functions->queue || !functions->callback) return false;
  const PyRef done =
      PyRef::Steal(PyObject_CallOneArg(functions->queue.get(), functions->callback.get()));
  ClearError();
  return static_cast<bool>(done);
}

// Whether zero_grad(set_to_none=False) may have left this one: all its bits are 0. Reads a tensor
// that has other bits no further than to the first of them.
bool HasNoBits(PyObject* gradient) {
  const TensorAccess access(gradient, Fetch::kNever);
  if (!access.readable() || !access.view().IsContiguous()) return false;
  const auto* bytes = static_cast<const char*>(access.view().data);
  const size_t size = static_cast<size_t>(access.view().numel()) * DTypeSize(access.view().dtype);
  return size == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

}  // namespace

bool GradientsBefore::Begin(bool has_models) {
  const dump::Config& config = recording_->config();
  const dump::Filter& filter = recording_->session->filter();
  knows_models_ |= has_models;
  pass_runs = false;  // a pass that raised an error has not told that it is over
  on_ = knows_models_ && config.bench_path.empty() && Framework::Get().is_torch() && !config.pkl &&
        (config.task == Task::kStatistics || config.task == Task::kTensor) &&
        config.level != Level::kDebug && filter.data_mode.backward() && filter.wants_all_entries();
  if (recording_->session->begins_step()) said_in_header_ = on_;
  return on_;
}

void GradientsBefore::OnArrival(PyObject* complete) {
  if (pass_runs || !on_ || !recording_->session->collecting()) return;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  pass_runs = TellAtTheEnd();
  if (pass_runs)
    Record(complete);
  else
    on_ = false;
}

void GradientsBefore::Record(PyObject* complete) {
  std::string name, backward;
  recording_->session->calls().Name(
      std::string(kGradientsBefore),
      recording_->session->calls().Next(recording_->counters.Of(std::string(kGradientsBefore))),
      /*is_module=*/false, &name, &backward);
  // All are found before the first is measured: measuring releases the GIL, and another thread may
  // start with other models, or be at this place for a pass of its own.
  std::vector<std::pair<std::string, PyRef>> found;
  for (const auto& [parameter_name, weak] : names_->InOrder()) {
    PyObject* const parameter = PyWeakref_GetObject(weak.get());  // None when it is gone
    if (parameter == Py_None) continue;
    const PyRef keep = PyRef::Borrow(parameter);
    PyRef gradient = GradientOf(parameter);
    if (!gradient || gradient.get() == complete || HasNoBits(gradient.get())) continue;
    found.emplace_back(parameter_name, std::move(gradient));
  }
  if (found.empty() && said_in_header_) return;
  Entry entry;
  entry.Begin(name);
  entry.BeginSlot("input_args", "input", Entry::Container::kList);
  entry.EndSlot();
  entry.BeginSlot("input_kwargs", "kwargs", Entry::Container::kDict);
  entry.EndSlot();
  entry.BeginSlot("output", "output", Entry::Container::kList);
  entry.BeginDict();
  for (const auto& [parameter_name, gradient] : found) {
    TensorValue value = RecordTensor(gradient.get(), recording_->options, EntryStyle(), "");
    entry.Key(parameter_name);
    entry.AddTensor(std::move(value));
  }
  entry.EndContainer();
  entry.EndSlot();
  entry.stack = -1;
  if (recording_->config().extra_info && PyEval_GetFrame() != nullptr) {
    bool is_new;
    const int64_t site = recording_->stacks.Intern(&is_new);
    entry.stack =
        recording_->session->NoteStack(site, name, [&] { return recording_->stacks.Format(); });
  }
  recording_->session->Record(
      {.entry = &entry, .name = name, .construct = recording_->modules_wanted});
  recording_->TakeArrived();
}

}  // namespace msprobe::capture
