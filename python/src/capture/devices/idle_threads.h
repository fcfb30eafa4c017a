// Threads of this process that work for PyTorch, seen through Linux (/proc/self/task).
//
//   const ReleasedGil released;  // a thread that needs it gets it now
//   const bool idle = AwaitIdleThreads("pt_autograd", std::chrono::seconds(2));
#pragma once

#include <chrono>
#include <string_view>

namespace msprobe::capture {

// Returns when each thread whose name begins with `prefix` has slept for 10 ms and was not woken in
// between, or after `most`. At once where no thread has such a name.
bool AwaitIdleThreads(std::string_view prefix, std::chrono::milliseconds most);

}  // namespace msprobe::capture
