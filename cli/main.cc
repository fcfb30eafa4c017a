// msprobe <verb> [flags]. Runs one verb, prints one error.
#include <malloc.h>

#include <exception>
#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/verb.h"
#include "cli/run.h"
#include "engine/base/messages/message.h"
#include "engine/base/temporary_files.h"

using msprobe::operator""_t;

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // Large tables are given back to the system when they are freed. By default malloc raises this
  // threshold when the first one is freed, and keeps the later ones in its heap: the peak of memory
  // would be higher.
  (void)mallopt(M_MMAP_THRESHOLD, 512 << 10);
#endif
  msprobe::cli::Console console;
  msprobe::RemoveTemporaryFilesOnSignals([&](int signal) { console.Interrupted(signal); });
  // The engine answers with a Status. An exception (no memory, a mistake in a library) is our fault
  // and not the user's.
  msprobe::Status failed;
  try {
    msprobe::Result<int> code =
        msprobe::cli::RunMsprobe(std::vector<std::string>(argv + 1, argv + argc), console);
    msprobe::Status written = console.Flush();
    if (code.ok() && written.ok()) return *code;
    failed = code.ok() ? written : code.status();
  } catch (const std::bad_alloc&) {
    failed = msprobe::Unsupported("out of memory"_t);
  } catch (const std::exception& error) {
    failed = msprobe::Internal(std::string(error.what()));
  }
  console.Error(failed);
  return msprobe::cli::kExitError;
}
