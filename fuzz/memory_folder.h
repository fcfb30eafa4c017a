// A folder in memory whose files have the fuzzed bytes, for readers that open files by name.
//
//   static MemoryFolder folder;
//   folder.Set("dump.json", text);
//   ReadDump(folder.path());
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace msprobe {

// One folder is used for the whole run and removed at its end.
class MemoryFolder {
 public:
  MemoryFolder() : path_(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") {
    path_ += "/msprobe_fuzz_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  MemoryFolder(const MemoryFolder&) = delete;
  ~MemoryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  // Makes `bytes` the content of the file `name`, and creates the folders in `name`.
  void Set(const std::string& name, std::string_view bytes) {
    const std::string file = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) std::abort();
    if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
    ::close(fd);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace msprobe
