#include "cli/programs/python_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <optional>
#include <utility>

#include "cli/command_line/console.h"
#include "cli/programs/program.h"
#include "engine/workers/worker_process.h"

namespace msprobe::cli {

namespace {
std::string running_python;  // the interpreter around this program; "": none
}  // namespace

void SetPythonProgram(std::string path) { running_python = std::move(path); }

std::string PythonProgram() {
  if (!running_python.empty()) return running_python;
  for (const char* name : {"python", "python3"}) {
    if (std::string path = BesideThisProgram(name); !path.empty()) return path;
  }
  return "python3";
}

Result<std::string> LineOfPython(const std::string& flag, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PythonProgram());
  MSPROBE_ASSIGN_OR_RETURN(workers::WorkerProcess process,
                           workers::WorkerProcess::Start(arguments, "/dev/null"));
  std::optional<std::string> line;
  while (!(line = process.TakeLine()) && !process.at_end()) {
    pollfd output{.fd = process.output(), .events = POLLIN, .revents = 0};
    ::poll(&output, 1, /*timeout=*/100);
  }
  if (!line) {
    return Unsupported("{}: the process of Python {}"_t(flag, Message(process.End())))
        .Hint(fmt::format("{}", fmt::join(arguments, " ")));
  }
  const size_t tab = line->find('\t');
  if (tab == line->npos) return std::move(*line);
  return Unsupported(MakePrintable(line->substr(0, tab)))
      .Hint(MakePrintable(line->substr(tab + 1)));
}

}  // namespace msprobe::cli
