#include "capture/devices/idle_threads.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace msprobe::capture {
namespace {

namespace fs = std::filesystem;

// Longer than the 5 ms after which a thread that waits for the GIL wakes up: it is not taken for an
// idle one.
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);

// How often each thread was put to sleep, by its number. A thread that runs has no count.
using Sleepers = std::map<std::string, std::string>;

std::string SleepsOf(const fs::path& thread) {
  std::ifstream status(thread / "status");
  bool sleeps = false;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) sleeps = line.find("(sleeping)") != std::string::npos;
    if (sleeps && line.starts_with("voluntary_ctxt_switches:")) return line;
  }
  return "";
}

Sleepers Look(std::string_view prefix) {
  Sleepers found;
  std::error_code failed;
  for (auto thread = fs::directory_iterator("/proc/self/task", failed);
       !failed && thread != fs::directory_iterator(); thread.increment(failed)) {
    std::string name;
    std::getline(std::ifstream(thread->path() / "comm"), name);
    if (name.starts_with(prefix)) found[thread->path().filename()] = SleepsOf(thread->path());
  }
  return found;
}

bool AllSleep(const Sleepers& threads) {
  for (const auto& [thread, sleeps] : threads) {
    if (sleeps.empty()) return false;
  }
  return true;
}

}  // namespace

bool AwaitIdleThreads(std::string_view prefix, std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  Sleepers before = Look(prefix);
  while (!before.empty()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kBetweenLooks);
    Sleepers now = Look(prefix);
    if (now == before && AllSleep(now)) return true;
    before = std::move(now);
  }
  return true;
}

}  // namespace msprobe::capture
