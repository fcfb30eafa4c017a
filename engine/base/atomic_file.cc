#include "engine/base/atomic_file.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "engine/base/system_calls.h"
#include "engine/base/temporary_files.h"

namespace msprobe {
namespace {

std::atomic<uint64_t> next_part{0};

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  // The process id and a number make the name unique, without mkstemp's extra system calls; O_EXCL
  // fails if the name exists all the same.
  for (int attempt = 0; attempt < 100; ++attempt) {
    file.temporary_ = fmt::format("{}.{}.{}.part", path, ::getpid(), next_part++);
    file.fd_ = CreateTemporaryFile(file.temporary_);
    if (file.fd_ >= 0) {
      file.needs_quiet_ = QuietSizeLimit::IsNeeded();
      return file;
    }
    if (errno != EEXIST) break;
  }
  const int error = errno;
  file.temporary_.clear();
  return IoError(path, "create a temporary file beside it"_t, error);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(needs_quiet_, other.needs_quiet_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
  ForgetTemporaryFile(temporary_);
}

Status AtomicFile::Write(std::span<const std::string_view> pieces) {
  if (fd_ < 0) return Internal("write to a closed file"_t);
  const QuietSizeLimit quiet(needs_quiet_);
  constexpr size_t kBatch = 64;
  static_assert(kBatch <= IOV_MAX);
  std::array<iovec, kBatch> batch;
  size_t next = 0;  // first piece not yet in the batch
  size_t used = 0;  // pieces in the batch
  while (true) {
    while (used < kBatch && next < pieces.size()) {
      const std::string_view piece = pieces[next++];
      if (!piece.empty()) batch[used++] = {const_cast<char*>(piece.data()), piece.size()};
    }
    if (used == 0) return Status::Ok();
    const ssize_t written =
        Uninterrupted([&] { return ::writev(fd_, batch.data(), static_cast<int>(used)); });
    if (written < 0) return IoError(path_, "write"_t, errno);
    size_ += static_cast<uint64_t>(written);
    // After a short write: drops the pieces that are written, and the written part of the next one.
    size_t rest = static_cast<size_t>(written), done = 0;
    while (done < used && rest >= batch[done].iov_len) rest -= batch[done++].iov_len;
    if (done < used && rest > 0) {
      batch[done].iov_base = static_cast<char*>(batch[done].iov_base) + rest;
      batch[done].iov_len -= rest;
    }
    std::move(batch.begin() + done, batch.begin() + used, batch.begin());
    used -= done;
  }
}

Status AtomicFile::Commit() {
  if (fd_ < 0) return Internal("commit of a closed file"_t);
  int error = CloseFile(std::exchange(fd_, -1));
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary_.c_str());
  ForgetTemporaryFile(temporary_);
  return error == 0 ? Status::Ok() : IoError(path_, "write"_t, error);
}

}  // namespace msprobe
