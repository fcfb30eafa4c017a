#include "cli/programs/observed_run.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cli/command_line/console.h"
#include "cli/programs/program.h"
#include "cli/programs/python_program.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

namespace msprobe::cli {

Result<RunFolder> RunFolder::Make(const std::string& path, std::string_view verb) {
  if (!path.empty()) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(path));
    return RunFolder(path, /*keep=*/true);
  }
  std::string pattern =
      std::filesystem::temp_directory_path() / fmt::format("msprobe_{}_XXXXXX", verb);
  if (::mkdtemp(pattern.data()) == nullptr) return IoError(pattern, "create"_t, errno);
  return RunFolder(std::move(pattern), /*keep=*/false);
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)), keep_(std::exchange(other.keep_, true)) {}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (!keep_) std::filesystem::remove_all(path_, ignored);
}

Result<ObservedRun> RunObserved(const ObservedProgram& program) {
  ObservedRun run;
  run.output = JoinPath(program.folder, program.name + ".txt");
  const std::string log = JoinPath(program.folder, program.name + ".log");
  MSPROBE_RETURN_IF_ERROR(RemoveFile(log));
  std::vector<std::string> words = {program.python.empty() ? PythonProgram() : program.python,
                                    "-m",
                                    "msprobe.pytorch.selfcheck",
                                    log,
                                    program.unit,
                                    std::to_string(program.steps),
                                    program.drive};
  words.insert(words.end(), program.command.begin(), program.command.end());
  MSPROBE_ASSIGN_OR_RETURN(run.code, RunProgram(words, run.output, program.environment));
  if (run.code == 0) {
    MSPROBE_ASSIGN_OR_RETURN(run.log, selfcheck::ReadRunLog(log));
  }
  return run;
}

Status CheckProgram(const std::vector<std::string>& command, std::string_view verb) {
  const bool is_module = !command.empty() && command[0] == "-m";
  if (command.empty() || (is_module && command.size() < 2)) {
    return InvalidArgument("msprobe {}: expected a script, or -m and a module"_t(verb))
        .Hint(fmt::format("msprobe {} train.py --epochs 1", verb));
  }
  if (!is_module && !IsRegularFile(command[0])) {
    return NotFound(command[0]).Expected("a training script"_t);
  }
  return Status::Ok();
}

std::string CommandText(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return MakePrintable(text);
}

Message HowItEnded(int code) {
  return code < 0 ? "was ended by signal {}"_t(-code) : "ended with exit code {}"_t(code);
}

}  // namespace msprobe::cli
