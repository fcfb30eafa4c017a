// Bindings for random_save, and for the methods of PrecisionDebugger other than start, stop and
// step.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "capture/calls/optimizer_calls.h"
#include "capture/collector.h"
#include "capture/gradients/gradient_probe.h"
#include "capture/tasks/random_log.h"
#include "convert.h"
#include "engine/base/log.h"

namespace msprobe::python {

using capture::Collector;
using capture::GradientProbe;
using capture::PyRef;
using capture::RandomLog;

void BindFront(nb::module_& m) {
  using namespace nb::literals;
  const auto collector = []() -> Collector& { return Collector::Get(); };
  m.def(
      "set_token_range",
      [=](std::optional<int64_t> first, std::optional<int64_t> last) {
        collector().SetTokenRange(first && last ? std::optional(std::pair(*first, *last))
                                                : std::nullopt);
      },
      "first"_a.none(), "last"_a.none(),
      "Record only these of the forward passes that begin_token counts; None: all.");
  m.def("begin_token", [=](nb::handle, nb::handle) { collector().BeginToken(); });
  m.def(
      "begin_module_dump",
      [=](nb::handle module, const char* name) {
        collector().Guarded([&] { collector().BeginModuleDump(module.ptr(), name); });
      },
      "module"_a, "name"_a, "Record this module's own calls, under this name, and nothing else.");
  m.def(
      "end_module_dump", [=] { collector().EndModuleDump(); }, "Record everything again.");
  m.def(
      "collecting", [=] { return collector().session().collecting(); },
      "Whether the current step is being recorded.");
  m.def(
      "begin_at_step",
      [=](int64_t step) {
        collector().BeginAtStep(step);
        GradientProbe::Get().BeginAtStep(step);
      },
      "step"_a, "End the step; the next has this number.");
  m.def(
      "save",
      [=](nb::handle variable, nb::handle name, bool with_gradients, std::optional<int> rank) {
        collector().Guarded(
            [&] { collector().Save(variable.ptr(), name.ptr(), with_gradients, rank); });
      },
      "variable"_a.none(), "name"_a.none(), "with_gradients"_a, "rank"_a.none(),
      "Level debug: record a value, and its gradients when they arrive.");
  m.def(
      "flush_saves", [=] { collector().Guarded([&] { collector().FlushSaves(); }); },
      "Record the gradients of saved values that have arrived so far.");
  m.def(
      "register_api",
      [=](const std::string& prefix, nb::handle module, nb::handle name) {
        return collector().custom_apis().Register(prefix, module.ptr(), name.ptr()).English();
      },
      "prefix"_a, "module"_a, "name"_a,
      "Observe an attribute. Returns the reason if it cannot be observed, else an empty text.");
  m.def("restore_api", [=](nb::handle module, nb::handle name) {
    collector().custom_apis().Restore(module.ptr(), name.ptr());
  });
  m.def(
      "add_operator",
      [=](const std::string& prefix, const std::string& name, const nb::list& objects) {
        std::vector<PyObject*> pointers;
        for (nb::handle object : objects) pointers.push_back(object.ptr());
        collector().custom_apis().AddOperator(prefix, name, pointers);
      },
      "prefix"_a, "name"_a, "objects"_a, "Observe an operator: its packet and its overloads.");
  m.def(
      "add_functional_collective",
      [=](const std::string& name, const nb::list& objects, bool waits) {
        std::vector<PyObject*> pointers;
        for (nb::handle object : objects) pointers.push_back(object.ptr());
        collector().custom_apis().AddCollective(
            name, waits ? capture::Api::kWait : capture::Api::kCall, pointers);
      },
      "name"_a, "objects"_a, "waits"_a,
      "Observe a functional collective, its packet and its overloads; `waits`: it is wait_tensor.");
  m.def(
      "add_kernel_run",
      [=](nb::handle run) { return collector().custom_apis().AddKernelRun(run.ptr()).English(); },
      "run"_a, "Observe launches of a class of Triton kernels; returns as register_api does.");
  m.def(
      "custom_op_namespaces", [=] { return collector().session().config().custom_op_namespaces; },
      "Namespaces of torch.ops to observe.");
  m.def(
      "warn", [](const std::string& message) { Log(LogLevel::kWarning, message); }, "message"_a);
  m.def(
      "optimizers_wanted", [=] { return collector().optimizers_wanted(); },
      "Whether steps of optimizers are recorded.");
  m.def(
      "cell_optimizer_begins",
      [=](nb::handle optimizer, nb::handle gradients) {
        return collector().optimizers().EnterCell(optimizer.ptr(), gradients.ptr());
      },
      "optimizer"_a, "gradients"_a,
      "A step of a MindSpore optimizer begins; False: it is not recorded.");
  m.def(
      "cell_optimizer_ends",
      [=](const char* exception) { collector().optimizers().LeaveCell(exception); }, "exception"_a,
      "The step that began last has ended; type of its exception, or \"\".");
  m.def(
      "follow_optimizers",
      [](nb::handle type) {
        if (PyType_Check(type.ptr()))
          capture::OptimizerCalls::Follow(reinterpret_cast<PyTypeObject*>(type.ptr()));
      },
      "type"_a, "Observe the steps of this class of optimizers, if one was constructed.");
  m.def(
      "add_optimizer_function",
      [](nb::handle function, const char* name, int role, const nb::list& arguments,
         bool decorated) {
        capture::OptimizerApi api;
        api.role = static_cast<capture::OptimizerApi::Role>(role);
        api.name = name;
        for (nb::handle argument : arguments)
          api.arguments.emplace_back(nb::borrow<nb::str>(argument).c_str());
        const Message reason =
            capture::OptimizerCalls::Add(function.ptr(), std::move(api), decorated);
        if (!reason.empty()) Log(LogLevel::kDebug, "{}: {}"_t(std::string(name), reason));
      },
      "function"_a, "name"_a, "role"_a, "arguments"_a, "decorated"_a,
      "Observe a function that prepares the step of an optimizer; if that fails, log why.");
  m.def(
      "set_generator",
      [=](nb::handle again) { collector().optimizers().SetGenerator(PyRef::Borrow(again.ptr())); },
      "again"_a, "again(values, error): a generator of the values, then the error if any.");
  m.def(
      "watch_gradients",
      [=](nb::list models) {  // [(prefix, model), ...]
        std::vector<std::pair<std::string, PyRef>> pairs;
        for (nb::handle pair : models)
          pairs.emplace_back(nb::str(pair[0]).c_str(), PyRef::Borrow(nb::object(pair[1]).ptr()));
        RaiseIfError(GradientProbe::Get().Watch(collector().session(), std::move(pairs)));
      },
      "models"_a, "Task grad_probe: summarise the gradients of these models from now on.");
  m.def(
      "note_autocast",
      [](const std::string& dtype) {
        if (const std::optional<DType> found = DTypeFromTorchName(dtype))
          GradientProbe::Get().NoteAutocast(*found);
      },
      "dtype"_a, "Task grad_probe: a module of this step runs under autocast in this dtype.");
  m.def(
      "watch_gradients_of",
      [=](std::vector<std::string> names) {
        RaiseIfError(GradientProbe::Get().WatchNames(collector().session(), std::move(names)));
      },
      "names"_a, "Task grad_probe: the names of the gradients that take_gradients() will get.");
  m.def(
      "take_gradients",
      [=](nb::handle gradients, std::optional<int> rank) {
        return collector().Guarded([&] {
          return GradientProbe::Get().TakeStep(&collector().session(), gradients.ptr(), rank);
        });
      },
      "gradients"_a, "rank"_a.none(),
      "An optimizer is called with these gradients, a list or tuple of tensors or arrays; False: "
      "no "
      "later step is wanted.");
  m.def(
      "optimizer_begins",
      [=](nb::handle optimizer, std::optional<int> rank) {
        collector().Guarded([&] {
          GradientProbe::Get().StepBegins(&collector().session(), optimizer.ptr(), rank);
        });
      },
      "optimizer"_a, "rank"_a.none(), "An optimizer is about to use the gradients.");
  m.def("optimizer_ends",
        [](nb::handle optimizer) { GradientProbe::Get().StepEnds(optimizer.ptr()); });
  m.def(
      "open_random_log",
      [](const std::string& folder, std::optional<int> rank, const std::string& own_directory) {
        RaiseIfError(RandomLog::Get().Open(folder, rank, own_directory));
      },
      "folder"_a, "rank"_a.none(), "own_directory"_a,
      "Create the file that note_random appends to.");
  m.def(
      "note_random",
      [](const std::string& api, std::optional<int> rank) { RandomLog::Get().Note(api, rank); },
      "api"_a, "rank"_a.none(), "One call of a random function, from the running stack.");
}

}  // namespace msprobe::python
