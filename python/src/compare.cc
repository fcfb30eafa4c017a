#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "cli/cluster/found_dumps.h"
#include "cli/command_line/console.h"
#include "cli/command_line/verb.h"
#include "cli/inputs/generation_arguments.h"
#include "cli/programs/python_program.h"
#include "cli/run.h"
#include "convert.h"
#include "engine/base/messages/message.h"

namespace msprobe::python {
namespace {

// Runs `msprobe` with these arguments and returns its exit code; an error is raised, not printed.
int Run(const std::vector<std::string>& arguments) {
  Result<int> code = cli::kExitOk;
  const nb::object interpreter = nb::module_::import_("sys").attr("executable");
  if (nb::isinstance<nb::str>(interpreter))
    cli::SetPythonProgram(nb::cast<std::string>(interpreter));
  {
    nb::gil_scoped_release release;
    cli::Console console;
    code = cli::RunMsprobe(arguments, console);
    if (code.ok()) {
      if (Status written = console.Flush(); !written.ok()) code = written;
    }
  }
  return ValueOrRaise(std::move(code));
}

// Does what the command line of msprobe 1.0 and 8 does with a compare.json.
void Compare(const std::string& input, const std::vector<std::string>& flags) {
  const compare::CompareInput paths =
      ValueOrRaise(compare::ParseCompareInput(input, "input_param"));
  if (Run(ValueOrRaise(cli::TranslateCompareArguments(flags, paths))) == cli::kExitError) {
    Raise(InvalidArgument(
        "some dumps could not be compared; the results of the others are written"_t));
  }
}

}  // namespace

void BindCompare(nb::module_& m) {
  using namespace nb::literals;
  m.def("compare", &Compare, "input"_a, "flags"_a,
        "Compares two dumps as `msprobe -f pytorch compare` does; `input` is the text of its "
        "compare.json.");
  m.def(
      "dumps_below",
      [](const std::string& path) { return ValueOrRaise(cli::FoundDumpsText(path)); }, "path"_a,
      "The dumps of a run on this machine, as JSON that `msprobe compare --ray` reads.");
  m.def("run", &Run, "arguments"_a, "Runs `msprobe` with these arguments; returns the exit code.");
}

}  // namespace msprobe::python
