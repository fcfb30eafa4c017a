#include "engine/workers/worker_pool.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>

#include "engine/base/memory_size.h"
#include "engine/workers/worker_process.h"

namespace msprobe::workers {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTickMilliseconds = 100;
constexpr std::string_view kRefused = "refused ";
constexpr int kFailedStarts = 3;  // in a row, of one worker: then the pool gives up
constexpr int kMostAgain = 3;     // times that one task is given to another worker

double SecondsSince(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

class Pool {
 public:
  Pool(const std::vector<std::string>& tasks, const PoolOptions& options,
       const std::function<bool(size_t, const TaskResult&)>& on_end,
       const std::function<void()>& on_idle)
      : tasks_(tasks), options_(options), on_end_(on_end), on_idle_(on_idle) {
    slots_.resize(std::min(options.workers.size(), std::max<size_t>(tasks.size(), 1)));
  }

  Status Run() {
    while (!stopped_ && ended_ < tasks_.size()) {
      MSPROBE_RETURN_IF_ERROR(StartWorkers());
      Wait();
      for (Slot& slot : slots_) {
        if (stopped_) break;
        MSPROBE_RETURN_IF_ERROR(Watch(slot));
      }
      if (on_idle_) on_idle_();
    }
    return Status::Ok();
  }

 private:
  struct Slot {
    std::optional<WorkerProcess> worker;
    bool ready = false;
    std::optional<size_t> task;
    Clock::time_point since;  // of the start, or of the task
    int failed_starts = 0;
  };

  Status StartWorkers() {
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.worker || !HasNext()) continue;
      MSPROBE_ASSIGN_OR_RETURN(WorkerProcess worker,
                               WorkerProcess::Start(options_.workers[i], options_.log));
      slot.worker.emplace(std::move(worker));
      slot.ready = false;
      slot.since = Clock::now();
    }
    return Status::Ok();
  }

  void Wait() {
    std::vector<pollfd> outputs;
    for (const Slot& slot : slots_) {
      if (slot.worker) outputs.push_back({.fd = slot.worker->output(), .events = POLLIN});
    }
    ::poll(outputs.data(), outputs.size(), kTickMilliseconds);
  }

  // Takes answers, and looks at the limits.
  Status Watch(Slot& slot) {
    while (slot.worker && !stopped_) {
      const std::optional<std::string> line = slot.worker->TakeLine();
      if (!line) break;
      if (!slot.ready) {
        if (line->starts_with(kRefused)) return Refusal(line->substr(kRefused.size()));
        slot.ready = *line == "ready";  // a library may print before
        if (slot.ready) slot.failed_starts = 0;
      } else if (slot.task && *line == "again") {
        Again(slot);
        return Status::Ok();
      } else if (slot.task) {
        End(slot, {.end = TaskEnd::kAnswered, .answer = *line});
      }
      if (slot.ready && !slot.task) Next(slot);
    }
    if (!slot.worker || stopped_) return Status::Ok();
    if (slot.worker->at_end()) return Lost(slot, TaskEnd::kCrashed, {});
    const double seconds = SecondsSince(slot.since);
    if (!slot.ready && options_.start_seconds > 0 && seconds > options_.start_seconds)
      return Lost(slot, TaskEnd::kHung, "did not start in {:.0f} s"_t(seconds));
    if (slot.task && options_.seconds > 0 && seconds > options_.seconds)
      return Lost(slot, TaskEnd::kHung, "did not end in {:g} s"_t(options_.seconds));
    const bool limited = slot.task && options_.bytes > 0;
    const uint64_t bytes = limited ? slot.worker->resident_bytes() : 0;
    if (limited && bytes > options_.bytes) {
      return Lost(slot, TaskEnd::kTookTooMuchMemory,
                  "took {} of memory, the limit is {}"_t(MemorySizeText(bytes),
                                                         MemorySizeText(options_.bytes)));
    }
    return Status::Ok();
  }

  bool HasNext() const { return !again_.empty() || next_ < tasks_.size(); }

  void Next(Slot& slot) {
    if (!HasNext()) {
      slot.worker.reset();
      return;
    }
    if (again_.empty()) {
      slot.task = next_++;
    } else {
      slot.task = again_.back();
      again_.pop_back();
    }
    slot.since = Clock::now();
    (void)slot.worker->Send(
        tasks_[*slot.task]);  // a worker that has ended is seen when it is watched
  }

  // The worker is ended, and its task is given to the next one that is free.
  void Again(Slot& slot) {
    slot.worker.reset();
    if (++times_again_[*slot.task] > kMostAgain) {
      End(slot, {.end = TaskEnd::kCrashed,
                 .lost = "{} workers in a row could not go on"_t(kMostAgain + 1)});
      return;
    }
    again_.push_back(*std::exchange(slot.task, std::nullopt));
  }

  void End(Slot& slot, const TaskResult& result) {
    ++ended_;
    const size_t task = *std::exchange(slot.task, std::nullopt);
    if (!on_end_(task, result)) stopped_ = true;
  }

  static Status Refusal(std::string_view said) {
    const size_t tab = std::min(said.find('\t'), said.size());
    Status status = InvalidArgument(said.substr(0, tab));
    return tab == said.size() ? status : std::move(status).Hint(said.substr(tab + 1));
  }

  // The worker is gone or is ended. `why`: empty when it ended itself.
  Status Lost(Slot& slot, TaskEnd end, Message why) {
    const Message how = slot.worker->End();
    slot.worker.reset();
    if (why.empty()) why = how;
    if (slot.task) {
      End(slot, {.end = end, .lost = "the process {}"_t(std::move(why))});
      return Status::Ok();
    }
    if (++slot.failed_starts < kFailedStarts) return Status::Ok();
    return IoError(options_.workers[0][0], "start a worker with"_t, 0)
        .Says("a worker {} before it was ready: {}"_t(why, LastLine(options_.log)));
  }

  const std::vector<std::string>& tasks_;
  const PoolOptions& options_;
  const std::function<bool(size_t, const TaskResult&)>& on_end_;
  const std::function<void()>& on_idle_;
  std::vector<Slot> slots_;
  size_t next_ = 0, ended_ = 0;
  std::vector<size_t> again_;          // tasks whose worker could not go on
  std::map<size_t, int> times_again_;  // task -> how often
  bool stopped_ = false;
};

}  // namespace

Status RunTasks(const std::vector<std::string>& tasks, const PoolOptions& options,
                const std::function<bool(size_t, const TaskResult&)>& on_end,
                const std::function<void()>& on_idle) {
  if (options.workers.empty())
    return InvalidArgument().Expected("one worker or more"_t).Found("none"_t);
  return Pool(tasks, options, on_end, on_idle).Run();
}

}  // namespace msprobe::workers
