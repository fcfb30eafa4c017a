// One run of a training program under observation (python/msprobe/pytorch/selfcheck.py), for the
// verbs that run a program several times.
//
//   MSPROBE_ASSIGN_OR_RETURN(const RunFolder folder, RunFolder::Make("", "selfcheck"));
//   MSPROBE_ASSIGN_OR_RETURN(const ObservedRun run, RunObserved({.command = {"train.py"},
//       .folder = folder.path(), .name = "off"}));
//   if (run.code == 0) Print("{} steps", run.log.StepCount());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/selfcheck/run_log.h"

namespace msprobe::cli {

// A folder for the files of runs: the user's, which stays, or a temporary one, which is removed.
class RunFolder {
 public:
  // `path`: "" for a temporary folder.
  static Result<RunFolder> Make(const std::string& path, std::string_view verb);
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;
  ~RunFolder();
  const std::string& path() const { return path_; }

 private:
  RunFolder(std::string path, bool keep) : path_(std::move(path)), keep_(keep) {}
  std::string path_;
  bool keep_;
};

struct ObservedProgram {
  std::vector<std::string> command;  // script and arguments, or "-m", module and arguments
  std::string python;                // the interpreter; "": the one beside this program
  std::string folder, name;          // folder/name.txt and .log are written
  std::string unit = "optimizer";    // what ends a step: "optimizer" or "backward"
  std::string drive;                 // keyword arguments of the debugger as JSON; "": none
  int64_t steps = 0;                 // the program ends after so many; 0: any
  std::vector<std::pair<std::string, std::string>> environment;
};

struct ObservedRun {
  int code = 0;
  std::string output;     // file with what the program printed
  selfcheck::RunLog log;  // empty unless the code is 0
};

// Errors: the program cannot be started, its log cannot be read.
Result<ObservedRun> RunObserved(const ObservedProgram& program);

// Whether the words name a script that exists, or -m and a module.
Status CheckProgram(const std::vector<std::string>& command, std::string_view verb);
std::string CommandText(const std::vector<std::string>& command);  // for a terminal
Message HowItEnded(int code);                                      // "ended with exit code 1"

}  // namespace msprobe::cli
