// What the methods of PrecisionDebugger beyond start, stop and step need, and random_save.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "capture/collector.h"
#include "capture/random_log.h"
#include "convert.h"

namespace msprobe::python {

using capture::Collector;
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
      "Of the forwards that begin_token tells of, record only these; None: everything.");
  m.def("begin_token", [=](nb::handle, nb::handle) { collector().BeginToken(); });
  m.def(
      "begin_at_step", [=](int64_t step) { collector().BeginAtStep(step); }, "step"_a,
      "End the step; the next has this number.");
  m.def(
      "save",
      [=](nb::handle variable, nb::handle name, bool with_gradients, std::optional<int> rank) {
        collector().Save(variable.ptr(), name.ptr(), with_gradients, rank);
      },
      "variable"_a.none(), "name"_a.none(), "with_gradients"_a, "rank"_a.none(),
      "Level debug: record a value, and its gradients when they come.");
  m.def(
      "flush_saves", [=] { collector().FlushSaves(); },
      "Record what has come of gradients that are waited for.");
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
