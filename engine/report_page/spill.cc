#include "engine/report_page/spill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/system_calls.h"

namespace msprobe::report_page {
namespace {

std::atomic<uint64_t> next_number{0};

}  // namespace

Spill::Spill(std::string folder, size_t record_bytes, size_t in_memory)
    : folder_(std::move(folder)),
      record_bytes_(record_bytes),
      most_bytes_(record_bytes * std::max<size_t>(1, in_memory)) {}

Spill::Spill(Spill&& other) noexcept
    : folder_(std::move(other.folder_)),
      record_bytes_(other.record_bytes_),
      most_bytes_(other.most_bytes_),
      waiting_(std::move(other.waiting_)),
      in_file_(other.in_file_),
      fd_(std::exchange(other.fd_, -1)) {}

Spill::~Spill() {
  if (fd_ >= 0) ::close(fd_);
}

Status Spill::Append(const void* record) {
  if (waiting_.size() == most_bytes_) MSPROBE_RETURN_IF_ERROR(Write());
  waiting_.append(static_cast<const char*>(record), record_bytes_);
  return Status::Ok();
}

Status Spill::Open() {
  if (!folder_.empty()) MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
  // The name is free at once. Not O_TMPFILE: some file systems do not know it.
  const std::string path =
      JoinPath(folder_, fmt::format("msprobe.{}.{}.spill", ::getpid(), next_number++));
  fd_ = Uninterrupted(
      [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
  if (fd_ < 0) return IoError(path, "create a temporary file"_t, errno);
  if (::unlink(path.c_str()) != 0) return IoError(path, "remove the name of"_t, errno);
  return Status::Ok();
}

Status Spill::Write() {
  if (fd_ < 0) MSPROBE_RETURN_IF_ERROR(Open());
  const QuietSizeLimit quiet(QuietSizeLimit::IsNeeded());
  for (size_t done = 0; done < waiting_.size();) {
    const ssize_t n = Uninterrupted([&] {
      return ::pwrite(fd_, waiting_.data() + done, waiting_.size() - done,
                      static_cast<off_t>(in_file_ + done));
    });
    if (n < 0) return IoError(folder_, "write a temporary file in it"_t, errno);
    done += static_cast<size_t>(n);
  }
  in_file_ += waiting_.size();
  waiting_.clear();
  return Status::Ok();
}

Status Spill::ForEach(const std::function<void(const void* record)>& take) {
  const auto take_all = [&](const std::string& records) {
    for (size_t at = 0; at < records.size(); at += record_bytes_) take(records.data() + at);
  };
  std::string piece;
  for (uint64_t at = 0; at < in_file_; at += piece.size()) {
    constexpr size_t kRecords = 4096;
    piece.resize(std::min<uint64_t>(in_file_ - at, kRecords * record_bytes_));
    for (size_t done = 0; done < piece.size();) {
      const ssize_t n = Uninterrupted([&] {
        return ::pread(fd_, piece.data() + done, piece.size() - done,
                       static_cast<off_t>(at + done));
      });
      if (n < 0) return IoError(folder_, "read a temporary file in it"_t, errno);
      if (n == 0) return Internal("a temporary file became shorter"_t);
      done += static_cast<size_t>(n);
    }
    take_all(piece);
  }
  take_all(waiting_);
  return Status::Ok();
}

}  // namespace msprobe::report_page
