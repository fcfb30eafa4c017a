// A process that answers lines: a line goes to its standard input, and one line of its standard
// output is the answer.
//
//   MSPROBE_ASSIGN_OR_RETURN(WorkerProcess worker, WorkerProcess::Start({"cat"}, "worker.log"));
//   MSPROBE_RETURN_IF_ERROR(worker.Send("7"));
//   // when worker.output() is readable
//   const std::optional<std::string> answer = worker.TakeLine();
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::workers {

class WorkerProcess {
 public:
  // What the process writes to standard error is added to the file `log`. Errors: kNotFound when
  // there is no such program, kIo.
  static Result<WorkerProcess> Start(const std::vector<std::string>& words, const std::string& log);
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  ~WorkerProcess();  // ends the process at once, and waits for it

  // Errors: kIo when the process has ended.
  Status Send(std::string_view line);
  int output() const { return output_; }  // to wait for: readable, or at its end
  // Reads what is there. A whole line without its end; nullopt: there is none yet.
  std::optional<std::string> TakeLine();
  bool at_end() const { return at_end_; }  // the process has closed its output

  pid_t pid() const { return pid_; }
  uint64_t resident_bytes() const;  // memory in use; 0 when it cannot be told
  // Ends the process and waits for it: "was ended by signal 11 (Segmentation fault)", "ended with
  // exit code 1".
  Message End();

 private:
  WorkerProcess() = default;
  void Reset();

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
  bool at_end_ = false;
  std::string buffer_;
};

}  // namespace msprobe::workers
