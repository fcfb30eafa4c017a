// Zip archives as torch.save and NumPy make them: read from memory, written as plain ("stored")
// entries.
//
//   MSPROBE_ASSIGN_OR_RETURN(ZipReader zip, ZipReader::Open(file.bytes(), path));
//   const ZipEntry* e = zip.Find("archive/data.pkl");
//   MSPROBE_ASSIGN_OR_RETURN(ZipContent c, zip.Read(*e, 1 << 20));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace msprobe::formats {

struct ZipEntry {
  std::string_view name;  // relative, no "..", no backslash, unique in the archive
  bool deflated = false;
  uint32_t crc32 = 0;
  uint64_t stored_size = 0;  // bytes in the archive
  uint64_t size = 0;         // bytes of content
  uint64_t offset = 0;       // of the stored bytes in the archive
};

struct ZipContent {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // null when the bytes lie in the archive itself
};

// Everything is checked when opening: the directory ends where the archive ends, entries lie
// inside, before the directory, and do not overlap; local and central headers agree; names are safe
// and unique. Refused: encryption, several disks, methods other than stored and deflate. Errors are
// kInvalidDump with `path` and byte offset.
class ZipReader {
 public:
  // `archive` must outlive the reader and what it returns.
  static Result<ZipReader> Open(std::string_view archive, const std::string& path);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* Find(std::string_view name) const;     // null: no such entry
  bool has_checksums() const { return has_checksums_; }  // false: zeros in place of all of them

  // The content of an entry, its CRC-32 checked if asked and present (torch can be told to write
  // zeros everywhere instead). Stored entries are not copied. kInvalidDump when a deflated entry's
  // size is over `max_inflated` bytes, or more than deflate could hold in its stored bytes.
  Result<ZipContent> Read(const ZipEntry& entry, uint64_t max_inflated, bool verify = true) const;

 private:
  std::string_view archive_;
  std::string path_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;
  bool has_checksums_ = false;
};

// Composes the records of an archive. The caller writes the records, and the contents between them.
//
//   ZipComposer zip;
//   zip.Add("a/version", "3\n");
//   zip.Begin("a/data/0", data.size(), 64);       // content begins at a multiple of 64
//   out += zip.Take(), out += data;
//   zip.End(Crc32(data)), zip.Finish();
//   out += zip.Take();
class ZipComposer {
 public:
  void Add(std::string_view name, std::string_view content, uint64_t alignment = 1);
  void Begin(std::string_view name, uint64_t size,
             uint64_t alignment = 1);  // alignment: a power of two up to 4096
  void End(uint32_t crc32);
  // Content that the caller has compressed (raw deflate), of less than 4 GiB: its sizes are told at
  // the end.
  void BeginDeflated(std::string_view name);
  void EndDeflated(uint32_t crc32, uint64_t stored_size, uint64_t size);
  void Finish();
  std::string Take();  // the bytes composed since the last Take

 private:
  struct Entry {
    std::string name;
    uint64_t offset, size;
    uint32_t crc32 = 0;
    uint64_t stored_size = size;
    bool deflated = false;
  };
  void LocalHeader(std::string_view name, const std::string& extra, bool zip64);
  void Descriptor();
  std::vector<Entry> entries_;
  std::string pending_;
  uint64_t position_ = 0;  // of the next byte in the archive
};

// Continues a CRC-32: to be called with one piece after another, and the result of the last call.
uint32_t Crc32(std::string_view bytes, uint32_t before = 0);
// The same for megabytes, by all threads of the pool.
uint32_t Crc32(std::string_view bytes, ThreadPool* pool);

}  // namespace msprobe::formats
