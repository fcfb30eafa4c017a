// With LD_PRELOAD, this library makes the N-th system call on a file below a folder fail, or the
// N-th `new` of one library throw. Python arms it through ctypes:
//
//   lib = ctypes.CDLL(None)
//   lib.faults_arm(b"/tmp/run", b"write,rename", 7, errno.ENOSPC, 0)
//   ...; lib.faults_injected()
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace {

constexpr int kShortWrite = -1;  // used as an errno: the call takes half of the bytes

char folder[4096];
char calls[256];  // names of the calls that are counted, separated by commas
int fault = 0;
bool lasting = false;  // every call from the N-th on fails, as on a full disk
std::atomic<bool> armed{false};
std::atomic<long> left{0}, seen{0}, injected{0};

char library[256];  // whose `new` counts; "" for none
std::atomic<long> news_left{0};

bool Counts(const char* call) {
  const char* at = strstr(calls, call);
  const size_t n = strlen(call);
  return at != nullptr && (at == calls || at[-1] == ',') && (at[n] == ',' || at[n] == '\0');
}

// The fault to inject into this call on `path`; 0 for none.
int FaultFor(const char* call, const char* path) {
  if (!armed || path == nullptr || strncmp(path, folder, strlen(folder)) != 0 || !Counts(call))
    return 0;
  ++seen;
  const long number = --left;
  if (number > 0 || (number < 0 && !lasting)) return 0;
  ++injected;
  return fault;
}

int FaultFor(const char* call, int fd) {
  if (!armed) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof(path) - 1);
  if (n <= 0) return 0;
  path[n] = '\0';
  return FaultFor(call, path);
}

template <typename F>
F Next(F, const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

int Refuse(int error) {
  errno = error > 0 ? error : EIO;
  return -1;
}

int Open(const char* path, int flags, mode_t mode) {
  if (const int error = (flags & (O_WRONLY | O_RDWR)) ? FaultFor("open", path) : 0)
    return Refuse(error);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // namespace

extern "C" {

void faults_arm(const char* below, const char* which, long at, int error, int from_there_on) {
  snprintf(folder, sizeof(folder), "%s", below);
  snprintf(calls, sizeof(calls), "%s", which);
  fault = error, lasting = from_there_on != 0;
  left = at, seen = 0, injected = 0;
  armed = true;
}
void faults_arm_new(const char* in_library, long at) {
  snprintf(library, sizeof(library), "%s", in_library);
  injected = 0, seen = 0;
  news_left = at;
}
void faults_disarm() {
  armed = false;
  news_left = 0;
  library[0] = '\0';
}
long faults_seen() { return seen; }
long faults_injected() { return injected; }

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Open(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(more, mode_t) : 0;
  va_end(more);
  return Open(path, flags, mode);
}
ssize_t write(int fd, const void* bytes, size_t size) {
  if (const int error = FaultFor("write", fd)) {
    if (error != kShortWrite) return Refuse(error);
    size = size / 2 + (size == 1);
  }
  return syscall(SYS_write, fd, bytes, size);
}
ssize_t writev(int fd, const iovec* pieces, int count) {
  if (const int error = FaultFor("write", fd)) {
    if (error != kShortWrite) return Refuse(error);
    return syscall(SYS_write, fd, pieces[0].iov_base,
                   pieces[0].iov_len / 2 + (pieces[0].iov_len == 1));
  }
  return syscall(SYS_writev, fd, pieces, count);
}
int ftruncate(int fd, off_t size) noexcept {
  if (const int error = FaultFor("ftruncate", fd)) return Refuse(error);
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int rename(const char* from, const char* to) noexcept {
  if (const int error = FaultFor("rename", to)) return Refuse(error);
  return static_cast<int>(syscall(SYS_rename, from, to));
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (const int error = FaultFor("mkdir", path)) return Refuse(error);
  return static_cast<int>(syscall(SYS_mkdir, path, mode));
}
int close(int fd) {
  const int error = FaultFor("close", fd);
  const long closed = syscall(SYS_close, fd);  // like Linux, closes the file also on an error
  return error ? Refuse(error) : static_cast<int>(closed);
}

}  // extern "C"

// Calls malloc, like the default operator new; the injected fault is a lack of memory.
void* operator new(size_t size) {
  if (news_left > 0) {
    Dl_info from;
    if (dladdr(__builtin_return_address(0), &from) != 0 && from.dli_fname != nullptr &&
        strstr(from.dli_fname, library) != nullptr) {
      ++seen;
      if (--news_left == 0) {
        ++injected;
        throw std::bad_alloc();
      }
    }
  }
  if (void* memory = malloc(std::max<size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
