#include "engine/base/writable_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/system_calls.h"

namespace msprobe {
namespace {

// The errno of making and writing a file; 0: it could be written.
int TryFile(const std::string& path) {
  const int fd = Uninterrupted(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); });
  if (fd < 0) return errno;
  const QuietSizeLimit quiet(QuietSizeLimit::IsNeeded());
  int error = Uninterrupted([&] { return ::write(fd, "", 1); }) == 1 ? 0 : errno;
  if (const int late = CloseFile(fd); error == 0) error = late;
  ::unlink(path.c_str());
  return error;
}

// The errno of making a folder in `parent` and a file in that folder.
int TryFolder(const std::string& parent) {
  std::string folder = JoinPath(parent, ".msprobe_trial_XXXXXX");
  if (::mkdtemp(folder.data()) == nullptr) return errno;
  const int error = TryFile(JoinPath(folder, "file"));
  ::rmdir(folder.c_str());
  return error;
}

}  // namespace

Status CheckWritable(const std::string& path) {
  std::string folder = path;
  struct stat info;
  while (::stat(folder.c_str(), &info) != 0) {
    int error = errno;
    if (error == ENOENT && IsLink(folder)) error = ENOTDIR;  // a link to nothing: mkdir fails there
    const std::string parent = DirectoryName(folder);
    if (error != ENOENT || parent == folder) return IoError(path, "create the directory"_t, error);
    folder = parent;
  }
  if (!S_ISDIR(info.st_mode)) return IoError(path, "create the directory"_t, ENOTDIR);
  const int error = TryFolder(folder);
  if (error == 0) return Status::Ok();
  return folder == path ? IoError(path, "write to the directory"_t, error)
                        : IoError(path, "create the directory"_t, error);
}

NewFolder& NewFolder::operator=(NewFolder&& other) noexcept {
  if (this != &other) {
    Remove();
    folders_ = std::exchange(other.folders_, {});
    files_ = std::exchange(other.files_, {});
  }
  return *this;
}

NewFolder::~NewFolder() { Remove(); }

Status NewFolder::Make(const std::string& path) {
  std::vector<std::string> missing;  // the lowest first
  for (std::string folder = path; !Exists(folder) && DirectoryName(folder) != folder;
       folder = DirectoryName(folder)) {
    missing.push_back(folder);
  }
  folders_.insert(folders_.end(), missing.rbegin(), missing.rend());
  return MakeDirectories(path);
}

void NewFolder::Add(const std::string& file) {
  if (!Exists(file)) files_.push_back(file);
}

void NewFolder::Keep() { folders_.clear(), files_.clear(); }

void NewFolder::Remove() {
  for (const std::string& file : files_) ::unlink(file.c_str());
  // A folder that is not empty stays: rmdir refuses it.
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder)
    ::rmdir(folder->c_str());
  Keep();
}

}  // namespace msprobe
