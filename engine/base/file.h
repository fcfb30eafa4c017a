// Files: whole-file views for reading, and the three ways the engine writes.
//
//   MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open("runs/a/dump.json"));
//   Parse(file.bytes());
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/result.csv", text));   // old or new
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

// A regular file mapped read-only. Directories, devices and sockets are errors. An empty file has
// empty bytes(). When another process truncates the file while it is mapped, a read of the lost
// part ends the process (SIGBUS): no error can be returned for that.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  // Opens a file whose name comes from a dump and may be hostile. `name` ("a.pt", "b/a.pt") is
  // looked up below `folder` and nowhere else. A symbolic link in `name`, "..", an absolute path, a
  // device, a pipe and a folder are errors (kInvalidDump). `folder` itself is trusted.
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

// A file that grows at its end; only TruncateTo and Replace change more of it. Each Append is one
// write(2): after a kill the file holds complete appends and at most a prefix of the last one.
class AppendFile {
 public:
  // Creates the file, or opens an existing one at its end (keep = true) or empties it (keep =
  // false).
  static Result<AppendFile> Open(const std::string& path, bool keep);
  AppendFile() = default;
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();
  // When the write fails (disk full), the file is cut back to its former size. If that fails as
  // well, later appends are refused until the file could be cut.
  Status Append(std::string_view bytes);
  Status TruncateTo(uint64_t size);
  // Replaces the whole content by `bytes`, with one write(2) that a kill cannot cut in two. False,
  // and the file is unchanged: `bytes` is larger than a page or than the size limit of files, or
  // smaller than the present content.
  bool Replace(std::string_view bytes);
  Status Sync();  // fdatasync
  Status Close();
  bool is_open() const { return fd_ >= 0; }
  bool IsRemoved() const;  // the file was deleted while it was open
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool torn_ = false;         // the file may end in half an append
  bool needs_quiet_ = false;  // see system_calls.h
};

// Writes a temporary file beside `path` and renames it to `path`: readers see the former file or
// the new one, never half. After an error the temporary file is gone.
Status WriteFileAtomically(const std::string& path, std::string_view bytes);
// The same for a text in pieces, one after the other.
Status WriteFileAtomically(const std::string& path, std::span<const std::string> pieces);

// Creates a directory and its parents. An existing directory is fine.
Status MakeDirectories(const std::string& path);

// Names (not paths) in a directory, sorted. Does not include "." and "..".
Result<std::vector<std::string>> ListDirectory(const std::string& path);

bool IsDirectory(const std::string& path);
bool IsRegularFile(const std::string& path);
bool IsLink(const std::string& path);        // a symbolic link; the other functions follow links
bool Exists(const std::string& path);        // of any kind: file, folder, device, ...
Status RemoveFile(const std::string& path);  // a missing file is not an error
std::string JoinPath(std::string_view directory, std::string_view name);
std::string BaseName(std::string_view path);
std::string DirectoryName(std::string_view path);

}  // namespace msprobe
