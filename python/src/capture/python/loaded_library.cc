#include "capture/python/loaded_library.h"

#include <dlfcn.h>

namespace msprobe::capture {

void* LoadedSymbol(const char* library, const char* symbol) {
  void* loaded = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  void* found = loaded != nullptr ? ::dlsym(loaded, symbol) : nullptr;
  if (loaded != nullptr) ::dlclose(loaded);
  return found;
}

}  // namespace msprobe::capture
