#include "engine/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "engine/base/system_calls.h"
#include "engine/base/temporary_files.h"

namespace msprobe {
namespace {

// Writes all bytes; returns 0 or errno. After a short write (disk full) it writes again, because
// only that call tells the reason.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = Uninterrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe would otherwise wait for a writer for ever.
  const int fd =
      Uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound(path);
    return IoError(path, "open"_t, errno);
  }
  return Map(fd, path);
}

Result<MappedFile> MappedFile::Map(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return IoError(path, "stat"_t, error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return Status(ErrorCode::kIo)
        .At(path)
        .Expected("a regular file"_t)
        .Found(S_ISDIR(info.st_mode) ? "a directory"_t : "a device, pipe or socket"_t);
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      file.size_ = 0;
      return IoError(path, "map"_t, error);
    }
    file.data_ = static_cast<const char*>(data);
  }
  ::close(fd);
  return file;
}

Result<MappedFile> MappedFile::OpenBelow(const std::string& folder, std::string_view name) {
  const auto refuse = [&](const Message& found) {
    return InvalidDump(folder)
        .Expected("the names of plain files in it"_t)
        .Found("{}, {}"_t(Excerpt(name, 120), found));
  };
  if (name.empty() || name.front() == '/' || name.find('\0') != name.npos)
    return refuse("which is not a file name"_t);
  const std::string path = JoinPath(folder, name);
  int at = Uninterrupted([&] { return ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); });
  if (at < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound(path);
    return IoError(folder, "open"_t, errno);
  }
  while (true) {
    const size_t slash = name.find('/');
    const std::string part(name.substr(0, slash));
    const bool last = slash == name.npos;
    struct stat info;
    Status status;
    if (part.empty() || part == "." || part == "..") {
      status = refuse("which leads out of it"_t);
    } else if (::fstatat(at, part.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      status = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG
                   ? NotFound(path)
                   : IoError(path, "stat"_t, errno);
    } else if (S_ISLNK(info.st_mode)) {
      status = refuse("a symbolic link: links inside a dump are not followed"_t);
    } else if (last ? !S_ISREG(info.st_mode) : !S_ISDIR(info.st_mode)) {
      status = refuse(S_ISDIR(info.st_mode)   ? "a folder"_t
                      : S_ISREG(info.st_mode) ? "with a file instead of a folder"_t
                                              : "a device, pipe or socket"_t);
    }
    if (!status.ok()) {
      ::close(at);
      return status;
    }
    // If a link has replaced the folder since the check, O_NOFOLLOW refuses it.
    const int flags = last ? O_RDONLY | O_NONBLOCK : O_PATH | O_DIRECTORY;
    const int next =
        Uninterrupted([&] { return ::openat(at, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC); });
    const int error = errno;
    ::close(at);
    if (next < 0) return IoError(path, "open"_t, error);
    if (last) return Map(next, path);
    at = next;
    name.remove_prefix(slash + 1);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

Result<AppendFile> AppendFile::Open(const std::string& path, bool keep) {
  // O_NONBLOCK: opening a named pipe would otherwise wait for a reader for ever.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (keep ? 0 : O_TRUNC);
  const int fd = Uninterrupted([&] { return ::open(path.c_str(), flags, 0666); });
  if (fd < 0) return IoError(path, "open for writing"_t, errno);
  struct stat info {};  // an emptied file has size 0
  if (keep && ::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return IoError(path, "stat"_t, error);
  }
  AppendFile file;
  file.path_ = path;
  file.fd_ = fd;
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.needs_quiet_ = QuietSizeLimit::IsNeeded();
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept { *this = std::move(other); }

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(torn_, other.torn_);
  std::swap(needs_quiet_, other.needs_quiet_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status AppendFile::Append(std::string_view bytes) {
  if (fd_ < 0) return Internal("append to a closed file"_t);
  if (torn_) MSPROBE_RETURN_IF_ERROR(TruncateTo(size_));
  const QuietSizeLimit quiet(needs_quiet_);
  if (const int error = WriteAll(fd_, bytes); error != 0) {
    // The half line is cut off. If that fails too, nothing may be appended after it: readers accept
    // half a line at the end of a file, but in the middle it is damage. Example: `"a": {"x` at the
    // end is an unfinished entry; followed by another entry it is not JSON.
    torn_ = !TruncateTo(size_).ok();
    return IoError(path_, "write"_t, error);
  }
  size_ += bytes.size();
  return Status::Ok();
}

Status AppendFile::TruncateTo(uint64_t size) {
  if (Uninterrupted([&] { return ::ftruncate(fd_, static_cast<off_t>(size)); }) != 0)
    return IoError(path_, "truncate"_t, errno);
  size_ = size;
  torn_ = false;
  return Status::Ok();
}

bool AppendFile::Replace(std::string_view bytes) {
  // One write of at most a page is whole or absent after a kill: the kernel copies a page without
  // looking for signals. The disk cannot be full, because the file has this page already. A limit
  // on the size of files could cut the write, so it is checked. Larger content would be several
  // pages, and a kill between two of them would leave half old and half new text.
  constexpr size_t kPage = 4096;
  if (fd_ < 0 || torn_ || size_ == 0 || bytes.size() < size_ || bytes.size() > kPage) return false;
  struct rlimit limit;
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes.size() > limit.rlim_cur) return false;
  // While O_APPEND is set, Linux appends the bytes of pwrite(2) and ignores the offset.
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags & ~O_APPEND) != 0) return false;
  const ssize_t written =
      Uninterrupted([&] { return ::pwrite(fd_, bytes.data(), bytes.size(), 0); });
  (void)::fcntl(fd_, F_SETFL, flags);
  if (written != static_cast<ssize_t>(bytes.size())) return false;
  size_ = bytes.size();
  return true;
}

Status AppendFile::Sync() {
  if (Uninterrupted([&] { return ::fdatasync(fd_); }) != 0) return IoError(path_, "sync"_t, errno);
  return Status::Ok();
}

Status AppendFile::Close() {
  if (fd_ < 0) return Status::Ok();
  if (const int error = CloseFile(std::exchange(fd_, -1)); error != 0)
    return IoError(path_, "close"_t, error);
  return Status::Ok();
}

bool AppendFile::IsRemoved() const {
  struct stat info;
  return ::fstat(fd_, &info) == 0 && info.st_nlink == 0;
}

namespace {

// `piece(i)`: the bytes of piece i.
template <typename Piece>
Status WritePieces(const std::string& path, size_t pieces, const Piece& piece) {
  // Not mkstemp(3): it creates the file with mode 0600. To give it the mode that the umask allows,
  // the umask must be read, which is only possible by changing it for all threads of the process.
  static std::atomic<unsigned> next_number{0};
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    temporary = path + '.' + std::to_string(::getpid()) + '.' + std::to_string(next_number++);
    fd = CreateTemporaryFile(temporary);
    if (fd < 0 && errno != EEXIST) break;
  }
  if (fd < 0) return IoError(path, "create a temporary file beside it"_t, errno);
  int error = 0;
  {
    const QuietSizeLimit quiet(QuietSizeLimit::IsNeeded());
    for (size_t i = 0; i < pieces && error == 0; ++i) error = WriteAll(fd, piece(i));
  }
  if (const int closed = CloseFile(fd); error == 0) error = closed;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary.c_str());
  ForgetTemporaryFile(temporary);
  return error == 0 ? Status::Ok() : IoError(path, "write"_t, error);
}

}  // namespace

Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  return WritePieces(path, 1, [&](size_t) { return bytes; });
}

Status WriteFileAtomically(const std::string& path, std::span<const std::string> pieces) {
  return WritePieces(path, pieces.size(), [&](size_t i) { return std::string_view(pieces[i]); });
}

Status MakeDirectories(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return Status::Ok();
  if (errno == ENOENT && DirectoryName(path) != path) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(path)));
    if (::mkdir(path.c_str(), 0777) == 0) return Status::Ok();
  }
  const int error = errno;
  if (IsDirectory(path)) return Status::Ok();  // also when another process was quicker
  return IoError(path, "create the directory"_t, error == EEXIST ? ENOTDIR : error);
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) {
    if (errno == ENOENT) return NotFound(path);
    return IoError(path, "list the directory"_t, errno);
  }
  std::vector<std::string> names;
  while (true) {
    errno = 0;  // readdir returns null at the end and on an error; only errno tells them apart
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(directory);
  if (error != 0) return IoError(path, "list the directory"_t, error);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsRegularFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsLink(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Status::Ok();
  return IoError(path, "remove"_t, errno);
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string DirectoryName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? path.substr(0, 1) : path.substr(0, slash));
}

}  // namespace msprobe
