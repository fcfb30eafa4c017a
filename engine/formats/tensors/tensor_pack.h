// A pack: many tensors in one file that grows at its end, and the log beside it while it grows.
// docs/reference/dump-format.md describes both byte by byte.
//
//   MSPROBE_ASSIGN_OR_RETURN(TensorPack pack, TensorPack::Open(folder, kPackName));
//   for (const PackEntry& e : pack.entries()) Print(e.name);       // no elements are touched
//   MSPROBE_ASSIGN_OR_RETURN(TensorFile t,
//       pack.Read(*pack.Find("Torch.mm.0.forward.output.0.pt")));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/file.h"
#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::formats {

inline constexpr char kPackName[] = "tensors.pack";  // in dump_tensor_data
inline constexpr char kPackLogSuffix[] = ".log";     // the log of "a.pack" is "a.pack.log"
inline constexpr uint64_t kPackAlignment = 64;       // of headers, records and elements
inline constexpr uint64_t kPackHeaderBytes = 64;     // of the pack's own header and of the log's
inline constexpr uint64_t kPackFooterBytes = 32;
using PackId = std::array<char, 16>;  // the same in a pack and in its log

struct PackEntry {
  std::string name;  // a file name: no '/', no control characters, not "." or ".."
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t offset = 0, size = 0;  // bytes of the elements, in the pack; the log continues the pack
  uint32_t crc32 = 0;             // of the elements
};

// What a writer appends. `entry.offset` may point to the elements of an earlier record; else it
// must be the end of the header: at + PackRecordHeader(entry).size(), where `at` is the place of
// the record.
std::string PackHeader(const PackId& id);
std::string PackRecordHeader(const PackEntry& entry);  // its size does not depend on offsets
// The index at place `at` with its footer; `headers`: those of all records, one after another.
std::string PackIndex(std::string headers, uint64_t count, uint64_t at);
// The log begins with 64 bytes: this, and the places of `base` and `length` in it.
std::string PackLogHeader(const PackId& id, uint64_t base);
inline constexpr uint64_t kPackLogBaseAt = 32, kPackLogLengthAt = 40;

inline uint64_t PadPack(uint64_t size) {
  return (size + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
}
// Whether a writer may use the name.
bool IsPackName(std::string_view name);
bool LooksLikeTensorPack(std::string_view bytes);

class TensorPack {
 public:
  // Opens folder/name, and its log if there is one; symbolic links are refused. A pack without an
  // index (the run goes on, or was killed) is read up to its last whole tensor. Errors as in
  // tensor_file.h.
  static Result<TensorPack> Open(const std::string& folder, std::string_view name);

  // In the order in which they were written. If two have one name, only the later one is kept.
  const std::vector<PackEntry>& entries() const { return entries_; }
  const PackEntry* Find(std::string_view name) const;  // nullptr: none
  const std::string& path() const { return pack_->path(); }
  bool is_complete() const { return complete_; }       // has its index
  uint64_t end() const { return end_; }                // of the records, the log's too
  uint64_t log_base() const { return log_base_; }      // from here on the log has the records
  std::string_view log() const { return log_bytes_; }  // its records
  const PackId& id() const { return id_; }
  uint64_t ignored_bytes() const { return ignored_; }  // of an unfinished tensor at the end

  // A view into the mapped files. The elements are verified against their checksum, or
  // TensorFile::crc32 is set for a caller that verifies them.
  Result<TensorFile> Read(const PackEntry& entry, Verify verify = Verify::kByReader) const;

 private:
  Status ReadIndex();
  void ReadRecords(uint64_t at, std::string_view bytes);
  Status ReadLog(MappedFile log);
  std::optional<PackEntry> ParseRecord(std::string_view bytes, uint64_t* header_size) const;
  void AddEntry(PackEntry entry);
  // The bytes of the pack, or of the log that continues it; empty: they lie in neither.
  std::string_view At(uint64_t offset, uint64_t size) const;

  std::shared_ptr<const MappedFile> pack_, log_;
  PackId id_{};
  std::string_view log_bytes_;
  uint64_t log_base_ = UINT64_MAX, end_ = kPackHeaderBytes, ignored_ = 0;
  bool complete_ = false;
  std::vector<PackEntry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace msprobe::formats
