#include "engine/workers/worker_pool.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <map>

namespace msprobe::workers {
namespace {

using ::testing::HasSubstr;

// A worker in the language of the shell: the answer to "7" is "<7>"; some tasks end it.
const char kWorker[] = R"(
echo noise; echo ready
while read -r task; do
  case $task in
    crash) kill -SEGV $$ ;;
    exit) exit 3 ;;
    hang) sleep 100 ;;
    again) echo again; sleep 100 ;;
    again*) if mkdir "${task#again}" 2>/dev/null; then echo again; sleep 100; fi; echo "<done>" ;;
    *) echo "<$task>" ;;
  esac
done)";

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

PoolOptions Options(size_t workers, const std::string& script = kWorker) {
  PoolOptions options;
  options.workers.assign(workers, Shell(script));
  options.log = ::testing::TempDir() + "workers.log";
  options.seconds = 0.5;
  return options;
}

std::map<size_t, TaskResult> RunAll(const std::vector<std::string>& tasks,
                                    const PoolOptions& options) {
  std::map<size_t, TaskResult> results;
  const Status status = RunTasks(tasks, options, [&](size_t task, const TaskResult& result) {
    EXPECT_TRUE(results.emplace(task, result).second) << "twice: " << task;
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return results;
}

TEST(WorkerPool, EveryTaskIsAnsweredOnce) {
  std::vector<std::string> tasks;
  for (int i = 0; i < 200; ++i) tasks.push_back(std::to_string(i));
  for (const size_t workers : {1, 3}) {
    const auto results = RunAll(tasks, Options(workers));
    ASSERT_EQ(results.size(), tasks.size());
    for (const auto& [task, result] : results) EXPECT_EQ(result.answer, "<" + tasks[task] + ">");
  }
}

TEST(WorkerPool, AWorkerThatRefusesIsBelieved) {
  int ended = 0;
  const Status status =
      RunTasks({"a", "b"}, Options(2, "printf 'refused no such device\\tleave -d out\\n'"),
               [&](size_t, const TaskResult&) { return ++ended > 0; });
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "no such device");
  EXPECT_EQ(status.hint(), "leave -d out");
  EXPECT_EQ(ended, 0);
}

TEST(WorkerPool, ACrashCostsItsTaskAlone) {
  const auto results = RunAll({"a", "crash", "b", "exit", "hang", "c"}, Options(2));
  ASSERT_EQ(results.size(), 6u);
  EXPECT_EQ(results.at(0).answer, "<a>");
  EXPECT_EQ(results.at(1).end, TaskEnd::kCrashed);
  EXPECT_THAT(results.at(1).lost.English(), HasSubstr("signal 11"));
  EXPECT_EQ(results.at(2).answer, "<b>");
  EXPECT_THAT(results.at(3).lost.English(), HasSubstr("exit code 3"));
  EXPECT_EQ(results.at(4).end, TaskEnd::kHung);
  EXPECT_THAT(results.at(4).lost.English(), HasSubstr("did not end in 0.5 s"));
  EXPECT_EQ(results.at(5).answer, "<c>");
}

TEST(WorkerPool, AnotherWorkerDoesWhatOneCouldNot) {
  const std::string folder = ::testing::TempDir() + "workers_again";
  ::rmdir(folder.c_str());
  for (const size_t workers : {1, 2}) {
    const auto results = RunAll({"a", "again" + folder, "b"}, Options(workers));
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results.at(0).answer, "<a>");
    EXPECT_EQ(results.at(1).answer, "<done>");
    EXPECT_EQ(results.at(2).answer, "<b>");
    EXPECT_EQ(::rmdir(folder.c_str()), 0) << "no worker gave the task back";
  }
}

TEST(WorkerPool, NotWithoutEnd) {
  const auto results = RunAll({"again", "b"}, Options(1));
  EXPECT_EQ(results.at(0).end, TaskEnd::kCrashed);
  EXPECT_THAT(results.at(0).lost.English(), HasSubstr("4 workers in a row could not go on"));
  EXPECT_EQ(results.at(1).answer, "<b>");
}

TEST(WorkerPool, MemoryHasALimit) {
  PoolOptions options = Options(1);
  options.seconds = 0;
  options.bytes = 1;
  const auto results = RunAll({"hang"}, options);
  EXPECT_EQ(results.at(0).end, TaskEnd::kTookTooMuchMemory);
  EXPECT_THAT(results.at(0).lost.English(), HasSubstr("the limit is 1"));
}

TEST(WorkerPool, StoppedByTheCaller) {
  int answers = 0;
  const Status status = RunTasks({"1", "2", "3"}, Options(1),
                                 [&](size_t, const TaskResult&) { return ++answers < 2; });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(answers, 2);
}

TEST(WorkerPool, AWorkerThatNeverStarts) {
  const Status status = RunTasks({"1"}, Options(2, "echo no module named msprobe >&2; exit 1"),
                                 [](size_t, const TaskResult&) { return true; });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("no module named msprobe"));
  PoolOptions missing;
  missing.workers = {{"/no/such/program"}};
  missing.log = ::testing::TempDir() + "workers.log";
  EXPECT_EQ(RunTasks({"1"}, missing, [](size_t, const TaskResult&) { return true; }).code(),
            ErrorCode::kNotFound);
}

TEST(WorkerPool, NothingToDo) { EXPECT_TRUE(RunAll({}, Options(2)).empty()); }

}  // namespace
}  // namespace msprobe::workers
