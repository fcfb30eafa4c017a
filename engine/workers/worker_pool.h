// Gives tasks to processes. A task whose worker crashes, hangs or takes too much memory costs that
// task alone: it is reported, and a new worker does the rest.
//
//   PoolOptions options{.workers = {{"python", "-m", "replay"}}, .log = "workers.log"};
//   Status done = RunTasks({"0", "1"}, options, [](size_t task, const TaskResult& result) {
//     Print("{}: {}", task, result.answer);
//     return true;                                  // false: stop
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::workers {

enum class TaskEnd : uint8_t { kAnswered, kCrashed, kHung, kTookTooMuchMemory };

struct TaskResult {
  TaskEnd end = TaskEnd::kAnswered;
  std::string answer;  // kAnswered: the line
  Message lost;        // else: what became of the worker
};

struct PoolOptions {
  // The words of each worker's command line. A worker writes one line, "ready", when it is, and
  // then one line for each task that it reads. The line "again" is no answer: the worker cannot go
  // on, and another one does the task. In place of "ready" it may write "refused ", what is wrong,
  // and after a tab what to type: none of them can do any task.
  std::vector<std::vector<std::string>> workers;
  std::string log;             // file; the standard error of all workers
  double seconds = 0;          // that one task may take; 0: any
  double start_seconds = 600;  // until "ready"; 0: any
  uint64_t bytes = 0;          // that one worker may take; 0: any
};

// Calls `on_end` once for each task, in the order in which they end, always in this thread. Each
// worker takes the next task when it is free. `on_idle` is called some times a second.
// Errors: kInvalidArgument when a worker refuses; kIo or kNotFound when no worker can be started,
// with the end of the log. The tasks that have not ended stay undone. Ok also when on_end stopped.
Status RunTasks(const std::vector<std::string>& tasks, const PoolOptions& options,
                const std::function<bool(size_t task, const TaskResult&)>& on_end,
                const std::function<void()>& on_idle = {});

}  // namespace msprobe::workers
