#include "capture/values/openmp_team.h"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/threads.h"

namespace msprobe::capture {
namespace {

// The function that compilers call for `#pragma omp parallel`; 0 threads: as many as are set. The
// runtimes of GCC, LLVM and Intel have it.
using Parallel = void (*)(void (*work)(void*), void* context, unsigned threads, unsigned flags);
Parallel parallel = nullptr;

// Appends the paths of loaded OpenMP runtimes. The loader's lock is held, so nothing may be loaded.
int NoteRuntime(dl_phdr_info* info, size_t, void* paths) {
  const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp"))
    static_cast<std::vector<std::string>*>(paths)->emplace_back(path);
  return 0;
}

Parallel FindParallel() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(NoteRuntime, &paths);
  for (const std::string& path : paths) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    void* entry = library != nullptr ? ::dlsym(library, "GOMP_parallel") : nullptr;
    if (entry != nullptr) return reinterpret_cast<Parallel>(entry);  // the library stays loaded
  }
  return nullptr;
}

}  // namespace

void BorrowOpenMpTeam() {
  if (parallel == nullptr) parallel = FindParallel();
  if (parallel != nullptr) {
    ThreadPool::Default().Borrow(
        [](void (*work)(void*), void* context) { parallel(work, context, 0, 0); });
  }
}

}  // namespace msprobe::capture
