// Files: whole-file views for reading, and the three ways the engine writes.
//
//   MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open("runs/a/dump.json"));
//   Parse(file.bytes());
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/result.csv", text));   // old or new
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

// A regular file mapped read-only. Refuses directories, devices and sockets. An empty file has
// empty bytes. A file that another process truncates while mapped is outside what we can answer
// with an error.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  // A file that hostile text names: `name` ("a.pt", "b/a.pt") is looked up below `folder` and
  // nowhere else. kInvalidDump, naming it, for a symbolic link on the way, "..", an absolute path,
  // a device, pipe or folder. The folder itself is the caller's.
  static Result<MappedFile> OpenBelow(const std::string& folder, std::string_view name);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::string_view bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  static Result<MappedFile> Map(int fd, const std::string& path);  // closes fd
  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// A file that only grows at its end, save for TruncateTo and Replace. Each Append is one write(2):
// after a kill the file holds whole appends and at most a prefix of the last one.
class AppendFile {
 public:
  // Creates the file, or opens an existing one at its end (keep = true) or empties it (keep =
  // false).
  static Result<AppendFile> Open(const std::string& path, bool keep);
  AppendFile() = default;
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();
  // When it cannot be written (disk full), the file is cut back to what it was; where that fails
  // too, nothing is appended behind the half until it can be cut.
  Status Append(std::string_view bytes);
  Status TruncateTo(uint64_t size);
  // Puts `bytes` in the place of all there is, with one write(2) that no kill can cut in two.
  // False: it could not be done so, because there is more of it than a page, more than a file may
  // have, or less than there was; the file is as before.
  bool Replace(std::string_view bytes);
  Status Sync();  // fdatasync
  Status Close();
  bool is_open() const { return fd_ >= 0; }
  bool IsRemoved() const;  // somebody deleted it: nobody will find what is written
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool torn_ = false;         // the file may end in half an append
  bool needs_quiet_ = false;  // see system_calls.h
};

// Writes `path` through a temporary file beside it and a rename; on any error nothing is left
// behind.
Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// Creates a directory and its parents. An existing directory is fine.
Status MakeDirectories(const std::string& path);

// Names (not paths) in a directory, sorted. Does not include "." and "..".
Result<std::vector<std::string>> ListDirectory(const std::string& path);

bool IsDirectory(const std::string& path);
bool IsRegularFile(const std::string& path);
bool IsLink(const std::string& path);        // symbolic; the functions around this one follow links
bool Exists(const std::string& path);        // as anything: a device as well
Status RemoveFile(const std::string& path);  // none there: fine
std::string JoinPath(std::string_view directory, std::string_view name);
std::string BaseName(std::string_view path);
std::string DirectoryName(std::string_view path);

}  // namespace msprobe
