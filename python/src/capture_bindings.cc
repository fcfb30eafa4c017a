#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <deque>

#include "bindings.h"
#include "capture/collector.h"
#include "capture/devices/device_kernel.h"
#include "capture/gradients/backward.h"
#include "capture/gradients/gradient_probe.h"
#include "capture/mindspore/mindspore_framework.h"
#include "capture/python/torch_framework.h"
#include "capture/recorders/graph_taps.h"
#include "capture/values/numpy_array.h"
#include "capture/values/openmp_team.h"
#include "convert.h"
#include "engine/base/log.h"
#include "engine/base/messages/language.h"
#include "engine/formats/text/name_lists.h"
#include "shipped_names.h"

namespace msprobe::python {
namespace {

using capture::Collector;
using Names = std::vector<std::string>;

// What a recording of MindSpore cannot do.
Status CheckForMindSpore(const dump::Config& config) {
  const auto refuse = [](Message what, Message hint) {
    return Unsupported(std::move(what)).Hint(std::move(hint));
  };
  if (config.task == Task::kFreeBenchmark || config.task == Task::kNanCheck) {
    return refuse(
        "on MindSpore, task is \"statistics\", \"tensor\", \"structure\", \"overflow_check\" or "
        "\"grad_probe\""_t,
        "the other tasks are recorded with msprobe.pytorch"_t);
  }
  if (config.level == Level::kL2) {
    return refuse("level \"L2\" needs an Ascend device, and a kernel dump of its own"_t,
                  "use level \"L0\", \"L1\" or \"mix\""_t);
  }
  return Status::Ok();
}

void Configure(nb::handle config_path, nb::handle task, nb::handle dump_path, nb::handle level,
               nb::handle step, const std::string& own_directory, std::optional<int> rank,
               std::string_view framework, nb::handle baseline, nb::handle baseline_action) {
  const std::string path = PathArgument("config_path", config_path).value_or("");
  const dump::ConfigOverrides overrides{
      TextArgument("task", task),         PathArgument("dump_path", dump_path),
      TextArgument("level", level),       StepArgument("step", step),
      PathArgument("baseline", baseline), TextArgument("baseline_action", baseline_action)};
  auto watch = std::make_unique<dump::ConfigWatch>(path, overrides);
  dump::Config config = ValueOrRaise(dump::LoadConfig(path, overrides));
  RaiseIfError(capture::CheckPlaces(config, rank));
  if (framework == "mindspore") RaiseIfError(CheckForMindSpore(config));
  PrepareCapture(own_directory, framework);
  Collector::Get().Configure(std::move(config), std::move(watch));
}

// Returns the names that a user has added to the shipped list and that do not exist. Names are
// passed as Python objects: nanobind would end the program when it has no memory for a std::string.
Names AddApis(const char* prefix, nb::handle owner, const nb::list& names, bool is_collective,
              bool output_is_arguments) {
  Names missing;
  for (const nb::handle each : names) {
    const std::string name = nb::borrow<nb::str>(each).c_str();
    const Message reason = Collector::Get().apis().Add(
        prefix, owner.ptr(), name,
        {.is_collective = is_collective, .output_is_arguments = output_is_arguments});
    if (reason.empty()) continue;
    Log(LogLevel::kDebug, "{}.{} is not observed: {}"_t(std::string(prefix), name, reason));
    if (kShippedNames.find("  - " + name + "\n") == std::string_view::npos)
      missing.push_back(fmt::format("{}.{} ({})", prefix, name, reason.English()));
  }
  return missing;
}

// Converts [(prefix of names, model), ...].
std::vector<std::pair<std::string, PyObject*>> NamedModels(const nb::list& models) {
  std::vector<std::pair<std::string, PyObject*>> pairs;
  for (nb::handle pair : models)
    pairs.emplace_back(nb::str(pair[0]).c_str(), nb::object(pair[1]).ptr());
  return pairs;
}

void Watch(nb::handle owner, const char* name, std::string_view kind) {
  const auto which = kind == "poll"       ? capture::Api::kPoll
                     : kind == "coalesce" ? capture::Api::kCoalesce
                     : kind == "allocate" ? capture::Api::kAllocator
                     : kind == "resize"   ? capture::Api::kResizer
                     : kind == "fill"     ? capture::Api::kFiller
                     : kind == "convert"  ? capture::Api::kConverter
                     : kind == "trace"    ? capture::Api::kCompiler
                     : kind == "frames"   ? capture::Api::kEvaluator
                                          : capture::Api::kWait;
  const Message reason = Collector::Get().apis().Watch(owner.ptr(), name, which);
  if (!reason.empty())
    Log(LogLevel::kDebug, "calls of {} are not seen: {}"_t(std::string(name), reason));
}

Message::Place PlaceOf(nb::handle value) {
  if (nb::isinstance<nb::int_>(value) && !PyBool_Check(value.ptr()))
    return nb::cast<int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  return std::string(nb::str(value).c_str());
}

std::string ShownMessage(const std::string& sentence, const nb::args& values) {
  std::vector<Message::Place> places;
  for (const nb::handle value : values) places.push_back(PlaceOf(value));
  const std::optional<Message> message = Message::Of(sentence, places);
  if (!message) throw nb::value_error("message: the sentence has another number of places");
  return message->Shown();
}

}  // namespace

void PrepareCapture(const std::string& own_directory, std::string_view framework) {
  static const std::string first(framework);
  if (framework != first) {
    Raise(InvalidArgument(
        "a process records one framework; expected msprobe.{}, which it has used already, found "
        "msprobe.{}"_t(first, framework)));
  }
  if (framework == "mindspore") {
    RaiseIfError(capture::LoadMindSpore());
  } else {
    RaiseIfError(capture::LoadTorch());
    capture::BorrowOpenMpTeam();
    Collector::Get().stacks().HideModuleCalls();
  }
  Collector::Get().stacks().HideDirectory(own_directory);
  // A forked child (a DataLoader worker) shares our files: it must not write to them.
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] {
    Collector::Get().Abandon();
    capture::GradientProbe::Get().Abandon();
  });
  if (registered != 0) Raise(Internal("pthread_atfork failed"_t));
}

void BindCapture(nb::module_& m) {
  using namespace nb::literals;
  const auto collector = []() -> Collector& { return Collector::Get(); };
  m.def("configure", &Configure, "config_path"_a.none(), "task"_a.none(), "dump_path"_a.none(),
        "level"_a.none(), "step"_a.none(), "own_directory"_a, "rank"_a = nb::none(),
        "framework"_a = "pytorch", "baseline"_a = nb::none(), "baseline_action"_a = nb::none(),
        "Load the configuration; keyword arguments take precedence over the file.");
  m.def(
      "log",
      [](const std::string& text, bool warning) {
        Log(warning ? LogLevel::kWarning : LogLevel::kInfo, text);
      },
      "text"_a, "warning"_a = false);
  m.def(
      "write_log",
      [](std::string_view level, const std::string& text) {
        Log(level == "debug"     ? LogLevel::kDebug
            : level == "warning" ? LogLevel::kWarning
            : level == "error"   ? LogLevel::kError
                                 : LogLevel::kInfo,
            text);
      },
      "level"_a, "text"_a, "A line of the program, as it is.");
  m.def("message", &ShownMessage,
        "A sentence with what stands in its places, in the language of the person who reads it: "
        "message(\"{} is not a tensor\", name).");
  m.def(
      "seeding",
      [=]() -> std::optional<std::pair<int64_t, bool>> {
        const dump::Config& config = collector().session().config();
        if (!config.seed && !config.is_deterministic) return std::nullopt;
        return std::pair(config.seed.value_or(1234), config.is_deterministic.value_or(false));
      },
      "(seed, is_deterministic) when the configuration has one of these keys.");
  m.def(
      "each_batch_is_a_step", [=] { return collector().session().config().enable_dataloader; },
      "Whether a DataLoader starts and stops (enable_dataloader).");
  m.def(
      "refresh",
      [=](bool has_model, std::optional<int> rank) { return collector().Refresh(has_model, rank); },
      "has_model"_a, "rank"_a = nb::none(),
      "Read a changed configuration again; True when collection has stopped for it.");
  m.def(
      "read_name_lists",
      [](const char* path, std::string_view own) {
        formats::NameLists lists = ValueOrRaise(formats::ReadNameLists(path));
        if (own.empty()) return lists;
        return formats::MergeNameLists(std::move(lists),
                                       ValueOrRaise(formats::ReadNameLists(std::string(own))));
      },
      "path"_a, "own"_a = "",
      "[(category, [name, ...]), ...] of a support_wrap_ops.yaml, changed by a user's list: "
      "its names are added, and names with a minus are removed.");
  m.def("add_apis", &AddApis, "prefix"_a, "owner"_a, "names"_a, "is_collective"_a = false,
        "output_is_arguments"_a = false,
        "List attributes of `owner` for observation; those that cannot be observed are logged.");
  m.def("watch", &Watch, "owner"_a.none(), "name"_a, "kind"_a = "wait",
        "Observe what this attribute does without recording it. \"wait\": its first argument is "
        "final when it returns; \"poll\": when it returns True; \"coalesce\": its second "
        "argument is the work of the coalesced collectives of the first. \"trace\": a compiler "
        "traces in it. \"frames\": it sets who evaluates frames.");
  m.def(
      "describe_parameters",
      [=](nb::handle describe) { collector().apis().DescribeWith(describe.ptr()); }, "describe"_a,
      "describe(\"Functional.dropout\", [functions]) gives the names of the positional parameters "
      "of a called API.");
  m.def(
      "add_autograd_functions",
      [=](nb::handle apply) { return collector().autograd_functions().Add(apply.ptr()).English(); },
      "apply"_a, "Observe the calls of torch.autograd.Function; \"\" or why they are not seen.");
  m.def(
      "before_compiling",
      [](nb::handle callable) { capture::Interposer::BeforeCompiling(callable.ptr()); },
      "callable"_a,
      "Called once, before the first call of a function added as \"trace\" or \"frames\".");
  m.def(
      "leaves_unwritten",
      [=](std::string_view name, std::vector<int64_t> places) {
        collector().apis().LeavesUnwritten(name, std::move(places));
      },
      "name"_a, "places"_a,
      "Results that a function (\"Functional.unique\") or the objects of a class "
      "(\"BatchNorm(is_training=True)\") leave unwritten; before add_apis().");
  m.def(
      "read_api_rules",
      [=](const char* risk_levels, const char* ignored_values) {
        RaiseIfError(collector().apis().ReadRules(risk_levels, ignored_values));
      },
      "risk_levels"_a, "ignored_values"_a, "The rules of two YAML files about single APIs.");
  m.def(
      "warn_unmet_rules",
      [=] {
        for (const Message& line : collector().apis().rules().UnusedRules())
          Log(LogLevel::kWarning, line);
      },
      "Log the rules about APIs that no list names; call it after the last add_apis().");
  m.def(
      "module_came",
      [=](nb::handle parent, nb::handle name, nb::handle module) {
        collector().Guarded([&] {
          collector().module_tree().OnModuleRegistered(parent.ptr(), name.ptr(), module.ptr());
        });
      },
      "parent"_a, "name"_a, "module"_a.none(), "A module was registered in another one.");
  m.def(
      "parameter_came",
      [=](nb::handle module, nb::handle name, nb::handle parameter) {
        collector().Guarded([&] {
          collector().module_tree().OnParameterRegistered(module.ptr(), name.ptr(),
                                                          parameter.ptr());
        });
      },
      "module"_a, "name"_a, "parameter"_a.none(), "A parameter was registered in a module.");
  m.def(
      "add_module_patcher",
      [](nb::handle function) {
        if (PyFunction_Check(function.ptr())) capture::ModuleCalls::AddPatcher(function.ptr());
      },
      "function"_a, "A Python function that restores nn.Module.__call__.");
  m.def(
      "hide_code", [=](nb::handle code) { collector().stacks().HideCode(code.inc_ref().ptr()); },
      "code"_a, "Leave the frames of this code object out of stacks.");
  m.def(
      "name_region",
      [=](nb::handle code, const char* region) {
        collector().stacks().NameRegion(code.inc_ref().ptr(), region);
      },
      "code"_a, "region"_a, "Calls below this code object have `region` as parent.");
  m.def(
      "modules_wanted", [=] { return collector().modules_wanted(); },
      "Whether the level records modules.");
  m.def(
      "apis_wanted", [=] { return collector().apis_wanted(); }, "Whether the level records APIs.");
  // The functions below raise nothing: an error is logged where it happens, and the training goes
  // on.
  m.def(
      "step_is_wanted", [=] { return collector().session().StepIsWanted(); },
      "Whether start() would begin to record now.");
  m.def(
      "note_failed_start",
      [=](std::string error) { collector().session().NoteFailedStart(std::move(error)); },
      "error"_a, "start() raises this error: the end of an empty recording says so.");
  m.def(
      "say_end",
      [=] {
        collector().Guarded([&] {
          collector().SayEnd();
          capture::GradientProbe::Get().SayUnmet(&collector().session());
        });
      },
      "At the end of the run: log what task free_benchmark has found, and what the configuration "
      "asked for and the run did not have.");
  m.def(
      "end_threads",
      [=] {
        collector().EndThreads();
        capture::AwaitBackwardThreads();
      },
      "At the end of the process: let the threads of devices free the graph and our hooks.");
  m.def(
      "start",
      [=](std::optional<int> rank, nb::list models, bool compiled, nb::list classes) {
        return collector().Guarded([&] {
          std::vector<PyTypeObject*> types;
          for (nb::handle type : classes) {
            if (PyType_Check(type.ptr()))
              types.push_back(reinterpret_cast<PyTypeObject*>(type.ptr()));
          }
          const Result<bool> collecting =
              collector().Start(rank, NamedModels(models), compiled, types);
          return collecting.ok() && *collecting;
        });
      },
      "rank"_a.none(), "models"_a, "compiled"_a = false, "classes"_a = nb::list(),
      "Begin collecting, with the modules of [(prefix of names, model), ...]; False when this step "
      "or rank is not wanted, or collection is off. Without models the model is the first called "
      "module of one of the classes that has parameters and modules inside. compiled: "
      "record_graph() is told of the calls.");
  m.def(
      "check_graphs",
      [=] {
        if (collector().session().config().task == Task::kOverflowCheck) {
          Raise(Unsupported("task \"overflow_check\" needs PyNative mode, found graph mode"_t)
                    .Hint("type mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"_t));
        }
      },
      "Raise when the configuration cannot be followed in compiled graphs.");
  m.def(
      "record_graph",
      [=](const char* cell, const char* around, bool backward, nb::tuple arrays) {
        collector().Guarded([&] {
          std::deque<capture::NumpyArray> read;
          capture::GraphRecorder::Tensors tensors;
          for (nb::handle array : arrays) tensors.emplace_back(read.emplace_back(array.ptr()));
          if (backward)
            collector().graphs().Backward(cell, &tensors);
          else
            collector().graphs().Forward(cell, around, &tensors);
        });
      },
      "cell"_a, "around"_a, "backward"_a, "arrays"_a,
      "A Cell of a compiled graph computed these arrays, or their gradients.");
  m.def(
      "add_graph_tap",
      [](const char* cell, const char* around, bool backward, const char* parameter) {
        return capture::GraphTaps::Get().Add({cell, around, backward, parameter});
      },
      "cell"_a, "around"_a, "backward"_a, "parameter"_a = "",
      "The number with which a compiled graph calls msprobe_graph_tap in place of record_graph().");
  m.def(
      "set_parameter_hooks_aside",
      [](bool aside) {
        aside ? capture::ParameterHooks::SetAside() : capture::ParameterHooks::PutBack();
      },
      "aside"_a, "While it is true, the parameters of the models have no hooks of ours.");
  m.def(
      "set_device_kernel",
      [](const std::string& name, nb::handle measure, nb::handle supports) {
        const auto given = [](nb::handle object) {
          return object.is_none() ? capture::PyRef() : capture::PyRef::Borrow(object.ptr());
        };
        capture::SetDeviceKernel({name, given(measure), given(supports)});
      },
      "name"_a, "measure"_a.none(), "supports"_a.none(),
      "The kernel that measures large tensors of devices (msprobe.pytorch.device_kernels).");
  m.def(
      "compiled_program", [=](const char* name) { collector().graphs().RanCompiled(name); },
      "name"_a,
      "A program ran compiled, where level L1 or mix sees no call; coverage.json names it.");
  m.def(
      "graph_cells_not_called",
      [=](const Names& cells) { return collector().graphs().NotCalled(cells); }, "cells"_a,
      "Those of the Cells that were not called in this step; coverage.json names them.");
  m.def(
      "schedule_tokens",
      [=](nb::handle tokens) { collector().session().ScheduleTokens(TokensArgument(tokens)); },
      "tokens"_a.none(), "{request id: number of tokens} of the coming step, or None.");
  m.def(
      "fault", [=](const char* what) { collector().Fault(what); },
      "The tool failed: end collection and log the error, once.");
  m.def(
      "stop_calls", [=] { collector().Guarded([&] { collector().StopCalls(); }); },
      "Record no more forward calls; gradients are still recorded.");
  m.def(
      "stop",
      [=] {
        collector().Guarded([&] { (void)collector().Stop(); });
        collector().Guarded([&] { collector().ForgetModules(); });
      },
      "Stop collecting, complete the files and release all modules.");
  m.def(
      "step", [=] { collector().Guarded([&] { collector().Step(); }); }, "End the step.");
  m.def(
      "take_back_empty_step", [=] { collector().session().TakeBackEmptyStep(); },
      "After step(): go back to the step that it ended, if no start() was asked for in it.");
  m.def(
      "folder", [=] { return collector().session().folder(); },
      "Where the current step is written.");
}

}  // namespace msprobe::python
