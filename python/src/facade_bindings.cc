// Bindings for debugger.config and debugger.service (python/msprobe/core/facade.py).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "capture/collector.h"
#include "convert.h"
#include "engine/base/messages/message.h"
#include "engine/dump/config/config_json.h"

namespace msprobe::python {

using capture::Collector;

void BindFacade(nb::module_& m) {
  using namespace nb::literals;
  const auto session = []() -> dump::Session& { return Collector::Get().session(); };
  m.def(
      "config_json", [=] { return dump::ConfigJson(session().config()); },
      "The configuration that holds, as JSON: config_json.h.");
  m.def(
      "dump_path",
      [=](bool configured) {
        return configured ? session().configured_path() : session().next_dump_path();
      },
      "configured"_a,
      "The path that was configured, or the one below which the next start() writes.");
  m.def(
      "set_dump_path",
      [=](nb::handle path, bool configured) {
        std::string text = PathArgument("dump_path", path).value_or("");
        if (text.empty())
          Raise(InvalidArgument(std::string("dump_path"))
                    .Expected("a path"_t)
                    .Found("None or \"\""_t));
        configured ? session().SetConfiguredPath(std::move(text))
                   : session().SetDumpPath(std::move(text));
      },
      "path"_a.none(), "configured"_a, "From the next start() on, write below this path.");
  m.def(
      "override_config",
      [](nb::handle task, nb::handle level, nb::handle step, bool has_model,
         std::optional<int> rank) {
        RaiseIfError(Collector::Get().Override({.task = TextArgument("task", task),
                                                .level = TextArgument("level", level),
                                                .step = StepArgument("step", step)},
                                               has_model, rank));
      },
      "task"_a.none(), "level"_a.none(), "step"_a.none(), "has_model"_a, "rank"_a.none(),
      "Take other keyword arguments of the debugger, between stop() and start().");
  m.def(
      "end_stage", [=] { session().EndStage(); },
      "The next start() begins a dump of its own, with call numbers from 0, in the same step.");
  m.def(
      "current_step", [=] { return session().current_step(); },
      "The step in which start() was called last.");
  m.def(
      "first_step", [=] { return session().first_step(); }, "0, or that of set_init_step().");
  m.def(
      "repeat_step", [] { Collector::Get().Guarded([] { Collector::Get().RepeatStep(); }); },
      "End the step; the next one has the same number.");
  m.def(
      "next_step", [=] { return session().step(); }, "The step that the next start() records.");
  m.def(
      "is_over", [=] { return session().is_over(); }, "Whether nothing more will be recorded.");
  m.def(
      "set_over",
      [](bool over) { Collector::Get().Guarded([&] { Collector::Get().SetOver(over); }); },
      "over"_a, "True: record nothing more. False: go on.");
  m.def(
      "first_start", [=] { return session().first_start(); },
      "Whether no start() has begun to record since set_first_start(True).");
  m.def(
      "set_first_start", [=](bool first) { session().SetFirstStart(first); }, "first"_a);
  m.def(
      "last_rank", [] { return Collector::Get().rank(); }, "The rank of the last start().");
  m.def(
      "step_folder", [=] { return session().step_folder(); },
      "The folder of the step that was recorded last; \"\" before the first.");
}

}  // namespace msprobe::python
