// For the extension with static libraries (make wheel). Debian's archives are compiled for
// programs: they read this variable of glibc in a way that no shared library may. With a copy of
// its own the extension may. 0: there may be several threads, so that std::shared_ptr counts with
// atomic operations.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
