#include "engine/dump/write/linked_tensors.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace msprobe::dump {
namespace {

constexpr size_t kMaxFiles = 1 << 16;  // about 20 MB; a longer step begins anew

std::atomic<uint64_t> next_number{0};

// 0 or the errno. A name that exists gets the file by a rename, so that it never stands for
// nothing.
int MakeLink(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return 0;
  if (errno != EEXIST) return errno;
  const std::string temporary = fmt::format("{}.{}.l{}.part", to, ::getpid(), next_number++);
  if (::link(from.c_str(), temporary.c_str()) != 0) return errno;
  const int error = ::rename(temporary.c_str(), to.c_str()) == 0 ? 0 : errno;
  // After a rename to a name of the same file, POSIX leaves both names.
  ::unlink(temporary.c_str());
  return error;
}

bool IsSame(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

bool LinkedTensors::possible() {
  const std::lock_guard lock(mutex_);
  return possible_;
}

bool LinkedTensors::Link(const Key& key, const std::string& path) {
  std::optional<File> file;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = files_.find(key); found != files_.end() && possible_)
      file = found->second;
  }
  if (!file) return false;
  // A program may read, move or change the files of a step while the step goes on.
  struct stat now;
  if (::lstat(file->path.c_str(), &now) != 0 || now.st_ino != file->inode ||
      now.st_size != file->size || !IsSame(now.st_mtim, file->modified))
    return false;
  const int error = MakeLink(file->path, path);
  if (error == 0) return true;
  // EMLINK: this file has as many names as it can have; the next one is written and gets the
  // others.
  if (error == EPERM || error == EXDEV || error == EOPNOTSUPP || error == ENOSYS ||
      error == EACCES) {
    const std::lock_guard lock(mutex_);
    possible_ = false;
    files_.clear();
  }
  return false;
}

void LinkedTensors::Note(const Key& key, const std::string& path) {
  struct stat now;
  if (::lstat(path.c_str(), &now) != 0 || !S_ISREG(now.st_mode)) return;
  const std::lock_guard lock(mutex_);
  if (!possible_) return;
  if (files_.size() >= kMaxFiles) files_.clear();
  files_.insert_or_assign(key, File{path, now.st_ino, now.st_size, now.st_mtim});
}

}  // namespace msprobe::dump
