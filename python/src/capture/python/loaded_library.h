// Functions of libraries that the program has loaded, such as those of PyTorch, looked up by their
// names: none of these libraries is linked.
//
//   bool (*is_enabled)() = nullptr;
//   FindLoaded(&is_enabled, "libtorch_cpu.so", "_ZN2at8autocast10is_enabledEv");
//   const bool is_on = is_enabled != nullptr && is_enabled();
#pragma once

namespace msprobe::capture {

// Null where the library is not loaded, or has no such symbol. Loads nothing.
void* LoadedSymbol(const char* library, const char* symbol);

template <typename Function>
void FindLoaded(Function* function, const char* library, const char* symbol) {
  *function = reinterpret_cast<Function>(LoadedSymbol(library, symbol));
}

}  // namespace msprobe::capture
