// The tensor files of one step, by content: a tensor whose bytes are in a file of the step already
// becomes a second name (a hard link) of that file, and is not written again.
//
//   const LinkedTensors::Key key = files.KeyOf(layout, bytes);
//   if (files.Link(key, path)) return Status::Ok();
//   files.Note(key, path);                                 // after the file was written
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/kernels/content_digest.h"

namespace msprobe::dump {

// May be used by several threads at once.
class LinkedTensors {
 public:
  // `layout` stands for all that a file has beside the elements: dtype, shape, format. Two tensors
  // that have the same layout object and the same bytes have the same file.
  using Key = std::pair<kernels::ContentDigest, std::shared_ptr<const void>>;
  static Key KeyOf(std::shared_ptr<const void> layout, std::string_view bytes) {
    return {kernels::DigestContent(bytes), std::move(layout)};
  }

  // False: the caller has to write the file. No file has this content; or the file was changed,
  // replaced or removed since; or the file system makes no more links to it, or none at all. A
  // former file at `path` is replaced: the name stands for the old file or the new one at each
  // moment.
  bool Link(const Key& key, const std::string& path);
  // The file at `path` is complete and has this content.
  void Note(const Key& key, const std::string& path);
  // False once the file system has refused links: digests are of no use then.
  bool possible();

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      return key.first.low ^ std::hash<const void*>()(key.second.get());
    }
  };
  struct File {
    std::string path;
    ino_t inode;
    off_t size;
    timespec modified;
  };
  std::mutex mutex_;
  std::unordered_map<Key, File, Hash> files_;
  bool possible_ = true;
};

}  // namespace msprobe::dump
