// Temporary files, which do not outlive the program when a signal ends it.
//
//   RemoveTemporaryFilesOnSignals([](int signal) { ::psignal(signal, "stopped"); });   // in main
//   const int fd = CreateTemporaryFile("out/t.csv.812.0.part");
//   // ... write, rename ...
//   ForgetTemporaryFile("out/t.csv.812.0.part");
#pragma once

#include <signal.h>

#include <functional>
#include <string>

namespace msprobe {

// From now on SIGINT, SIGTERM and SIGHUP remove all temporary files, call `last_words` with the
// signal's number, and end the program by the same signal: a shell shows the code 130, 143 or 129,
// and stops its own loop at Ctrl-C. A signal that the program was started to ignore (nohup, a
// background job) stays ignored. For programs of our own only: the signals of a training belong to
// it. To be called once; threads must not have been started before. `last_words` runs on a thread
// of its own, while the others still run.
void RemoveTemporaryFilesOnSignals(std::function<void(int signal)> last_words);

// The signals that this thread blocked before that call: those that a child should block.
sigset_t SignalMaskOfChildren();

// Creates a file that must not exist, for writing. Returns its descriptor, or -1 and errno.
int CreateTemporaryFile(const std::string& path);
// The file was renamed or removed. Must follow each successful CreateTemporaryFile.
void ForgetTemporaryFile(const std::string& path);

}  // namespace msprobe
