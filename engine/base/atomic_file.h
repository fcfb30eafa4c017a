// A file that appears whole under its name, or not at all.
//
//   MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create("out/t.pt"));
//   MSPROBE_RETURN_IF_ERROR(file.Write({{prefix, data, suffix}}));   // one writev(2)
//   MSPROBE_RETURN_IF_ERROR(file.Commit());                          // now it has its name
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe {

// The file is written under "<path>.<pid>.<n>.part" and renamed by Commit(). The destructor removes
// it when there was no Commit(); so does a signal in programs that ask for it (temporary_files.h).
// One object must not be used by two threads at once.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);
  AtomicFile() = default;
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Appends the pieces in order, in as few system calls as the kernel allows (1 up to 2 GiB).
  Status Write(std::span<const std::string_view> pieces);
  Status Write(std::initializer_list<std::string_view> pieces) {
    return Write(std::span<const std::string_view>(pieces.begin(), pieces.size()));
  }
  Status Commit();

  const std::string& temporary_path() const {
    return temporary_;
  }  // for libraries that need a path
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  void Discard();
  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
  bool needs_quiet_ = false;  // see system_calls.h
};

}  // namespace msprobe
