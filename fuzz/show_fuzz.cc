// Runs `msprobe show` on any bytes: it prints them, or returns an error that names the file.
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cli/outputs/show_files.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace {

// Discards all printed text while an object of this class exists.
class Silence {
 public:
  Silence() : kept_(::dup(STDOUT_FILENO)) {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (kept_ < 0 || nowhere < 0 || ::dup2(nowhere, STDOUT_FILENO) < 0) std::abort();
    ::close(nowhere);
  }
  ~Silence() {
    ::dup2(kept_, STDOUT_FILENO);
    ::close(kept_);
  }

 private:
  int kept_;
};

}  // namespace

FUZZ_TARGET(show) {
  static msprobe::MemoryFolder folder;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Silence silence;
  for (const char* name : {"side.json", "table.csv", "tensor.pt"}) {
    folder.Set(name, bytes);
    const std::string path = folder.path() + "/" + name;
    msprobe::cli::Console out;
    for (const msprobe::cli::ShowTensorOptions& options :
         {msprobe::cli::ShowTensorOptions{},
          {.filter = "a", .slice = "0:2,...", .limit = 3},
          {.golden = path}}) {
      const auto shown = msprobe::cli::ShowOtherFile(path, options, out);
      if (shown.ok()) continue;
      if (shown.status().code() == msprobe::ErrorCode::kInternal ||
          shown.status().message().empty())
        std::abort();
    }
  }
  return 0;
}
