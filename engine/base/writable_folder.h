// The folder of a result: whether it can be written to, and its end when there is no result.
//
//   NewFolder folder;
//   MSPROBE_RETURN_IF_ERROR(folder.Make("out/graphs"));
//   // ... read the input; an error leaves neither out/graphs nor out behind ...
//   folder.Keep();
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

// Whether folders and files can be made below `path`. If `path` does not exist, the nearest folder
// above it that exists is tried. The trial creates a folder with a unique name and in it a file of
// one byte, and removes both. Errors: kIo, with the folder and the reason.
Status CheckWritable(const std::string& path);

// Folders that were made for a result. A refused input leaves nothing behind: without Keep() the
// destructor removes those of them that are empty, after the files that were announced.
class NewFolder {
 public:
  NewFolder() = default;
  NewFolder(NewFolder&& other) noexcept = default;
  NewFolder& operator=(NewFolder&& other) noexcept;
  ~NewFolder();

  // Makes the folder and those above it that are missing. May be called for several folders.
  Status Make(const std::string& path);
  // Announces a file that will be written. A file that exists already is not removed.
  void Add(const std::string& file);
  void Keep();

 private:
  void Remove();
  std::vector<std::string> folders_, files_;  // that did not exist
};

}  // namespace msprobe
