#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <new>
#include <optional>

#include "engine/base/messages/message.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/archive/zip_layout.h"

namespace msprobe::formats {

using namespace zip;  // NOLINT: the record constants

namespace {

// Where the directory lies, from the records at the end of the archive.
struct Directory {
  uint64_t offset = 0, size = 0, count = 0;
};

Result<Directory> FindDirectory(std::string_view archive, const std::string& path) {
  // The end record is followed by a comment of at most 65535 bytes and must account for every byte
  // up to the end.
  const size_t lowest = archive.size() > kEndSize + 0xffff ? archive.size() - kEndSize - 0xffff : 0;
  std::optional<size_t> end;
  for (size_t at = archive.size(); at >= lowest + kEndSize; --at) {
    const char* p = archive.data() + at - kEndSize;
    if (LoadLittle<uint32_t>(p) != kEnd) continue;
    if (at + LoadLittle<uint16_t>(p + 20) != archive.size()) continue;
    end = at - kEndSize;
    break;
  }
  if (!end) {
    return InvalidDump(path, archive.size())
        .Expected("the end record of a zip archive"_t)
        .Found("the end of the file"_t)
        .Hint("the file is truncated: the run may have been killed while writing it"_t);
  }
  const char* p = archive.data() + *end;
  const uint16_t disk = LoadLittle<uint16_t>(p + 4), directory_disk = LoadLittle<uint16_t>(p + 6);
  const uint16_t disk_count = LoadLittle<uint16_t>(p + 8), count = LoadLittle<uint16_t>(p + 10);
  if (disk != 0 || directory_disk != 0 || disk_count != count) {
    return InvalidDump(path, *end)
        .Expected("a zip archive on one disk"_t)
        .Found("a part of several"_t);
  }
  Directory directory{
      .offset = LoadLittle<uint32_t>(p + 16), .size = LoadLittle<uint32_t>(p + 12), .count = count};
  uint64_t directory_end = *end;
  if (*end >= kZip64LocatorSize && LoadLittle<uint32_t>(p - kZip64LocatorSize) == kZip64Locator) {
    const uint64_t at = LoadLittle<uint64_t>(p - kZip64LocatorSize + 8);
    const uint64_t locator = *end - kZip64LocatorSize;
    if (locator < kZip64EndSize || at != locator - kZip64EndSize ||
        LoadLittle<uint32_t>(archive.data() + at) != kZip64End) {
      return InvalidDump(path, locator)
          .Expected("the zip64 end record just before its locator"_t)
          .Found("a locator that points at offset {}"_t(at));
    }
    const char* q = archive.data() + at;
    const Directory wide{.offset = LoadLittle<uint64_t>(q + 48),
                         .size = LoadLittle<uint64_t>(q + 40),
                         .count = LoadLittle<uint64_t>(q + 32)};
    const bool agree = (directory.offset == kIn64 || directory.offset == wide.offset) &&
                       (directory.size == kIn64 || directory.size == wide.size) &&
                       (directory.count == 0xffff || directory.count == wide.count);
    if (!agree) {
      return InvalidDump(path, at)
          .Expected("a zip64 end record that agrees with the end record"_t)
          .Found("different values"_t);
    }
    directory = wide;
    directory_end = at;
  }
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset) {
    return InvalidDump(path, *end)
        .Expected("a directory that ends at offset {}"_t(directory_end))
        .Found("one of {} bytes at offset {}"_t(directory.size, directory.offset));
  }
  if (directory.count > directory.size / kCentralSize) {
    return InvalidDump(path, *end)
        .Expected("at most {} entries in {} bytes"_t(directory.size / kCentralSize, directory.size))
        .Found(fmt::format("{}", directory.count));
  }
  return directory;
}

bool IsSafeName(std::string_view name) {
  if (name.empty() || name.front() == '/') return false;
  for (const char c : name) {
    if (c == '\\' || c == '\0') return false;
  }
  while (true) {
    const size_t slash = name.find('/');
    if (name.substr(0, slash) == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

// Replaces the fields that say "see the zip64 record" by that record's values. False: the record is
// missing or short.
bool ReadZip64(std::string_view extra, uint64_t* size, uint64_t* stored_size, uint64_t* offset) {
  while (extra.size() >= 4) {
    const uint16_t id = LoadLittle<uint16_t>(extra.data());
    const uint16_t length = LoadLittle<uint16_t>(extra.data() + 2);
    extra.remove_prefix(4);
    if (length > extra.size()) return false;
    if (id == kZip64Extra) {
      std::string_view record = extra.substr(0, length);
      for (uint64_t* field : {size, stored_size, offset}) {
        if (*field != kIn64) continue;
        if (record.size() < 8) return false;
        *field = LoadLittle<uint64_t>(record.data());
        record.remove_prefix(8);
      }
      return true;
    }
    extra.remove_prefix(length);
  }
  return *size != kIn64 && *stored_size != kIn64 && *offset != kIn64;
}

// An entry as the directory has it, before its local header is looked at.
struct DirectoryEntry {
  ZipEntry entry;
  uint64_t at = 0, record_size = 0;  // of the record in the directory
  uint64_t local = 0;                // offset of the local header
  uint16_t method = 0;
  std::string shown;  // the name, for messages
};

Result<DirectoryEntry> ReadDirectoryEntry(std::string_view archive, const std::string& path,
                                          uint64_t at, uint64_t end) {
  if (end - at < kCentralSize || LoadLittle<uint32_t>(archive.data() + at) != kCentralHeader) {
    return InvalidDump(path, at)
        .Expected("an entry of the zip directory"_t)
        .Found(Excerpt(archive.substr(at, std::min<uint64_t>(4, end - at))));
  }
  const char* p = archive.data() + at;
  const uint16_t flags = LoadLittle<uint16_t>(p + 8), name_size = LoadLittle<uint16_t>(p + 28),
                 extra_size = LoadLittle<uint16_t>(p + 30);
  DirectoryEntry out{.at = at, .method = LoadLittle<uint16_t>(p + 10)};
  out.record_size = uint64_t{kCentralSize} + name_size + extra_size + LoadLittle<uint16_t>(p + 32);
  if (out.record_size > end - at) {
    return InvalidDump(path, at)
        .Expected("a directory entry of at most {} bytes"_t(end - at))
        .Found(fmt::format("{}", out.record_size));
  }
  out.entry = {.name = archive.substr(at + kCentralSize, name_size),
               .deflated = out.method == kDeflate,
               .crc32 = LoadLittle<uint32_t>(p + 16),
               .stored_size = LoadLittle<uint32_t>(p + 20),
               .size = LoadLittle<uint32_t>(p + 24)};
  out.shown = Excerpt(out.entry.name, 80);
  out.local = LoadLittle<uint32_t>(p + 42);
  if (!IsSafeName(out.entry.name)) {
    return InvalidDump(path, at).Expected("an entry name inside the archive"_t).Found(out.shown);
  }
  const bool encrypted = (flags & kFlagEncrypted) != 0;
  if (encrypted || (out.method != kStored && out.method != kDeflate)) {
    return InvalidDump(path, at)
        .Expected("a stored or deflated entry"_t)
        .Found(encrypted ? "an encrypted one, {}"_t(out.shown)
                         : "method {} for {}"_t(out.method, out.shown));
  }
  if (!ReadZip64(archive.substr(at + kCentralSize + name_size, extra_size), &out.entry.size,
                 &out.entry.stored_size, &out.local)) {
    return InvalidDump(path, at)
        .Expected("a zip64 record with the sizes of {}"_t(out.shown))
        .Found("none, or a short one"_t);
  }
  return out;
}

// Where the entry's content begins: after its local header, which lies before the directory.
Status FindContent(std::string_view archive, const std::string& path, uint64_t directory_offset,
                   DirectoryEntry* found) {
  ZipEntry& entry = found->entry;
  const uint64_t local = found->local;
  if (local > directory_offset || directory_offset - local < kLocalSize ||
      LoadLittle<uint32_t>(archive.data() + local) != kLocalHeader) {
    return InvalidDump(path, found->at)
        .Expected("the offset of a local header"_t)
        .Found("{} for {}"_t(local, found->shown));
  }
  const char* q = archive.data() + local;
  const uint64_t name_size = LoadLittle<uint16_t>(q + 26);
  const uint64_t header_size = kLocalSize + name_size + LoadLittle<uint16_t>(q + 28);
  if (header_size > directory_offset - local ||
      archive.substr(local + kLocalSize, name_size) != entry.name ||
      LoadLittle<uint16_t>(q + 8) != found->method) {
    return InvalidDump(path, local)
        .Expected("a local header that agrees with the directory's, {}"_t(found->shown))
        .Found("another name, method or size"_t);
  }
  entry.offset = local + header_size;
  if (entry.stored_size > directory_offset - entry.offset) {
    return InvalidDump(path, local)
        .Expected("at most {} bytes in {}"_t(directory_offset - entry.offset, found->shown))
        .Found(fmt::format("{}", entry.stored_size));
  }
  if (!entry.deflated && entry.stored_size != entry.size) {
    return InvalidDump(path, found->at)
        .Expected("{} bytes stored for {}"_t(entry.size, found->shown))
        .Found(fmt::format("{}", entry.stored_size));
  }
  return Status::Ok();
}

// Entries that share bytes are how a small file claims to hold a large one.
Status CheckNoOverlap(const std::vector<ZipEntry>& entries, const std::string& path) {
  std::vector<const ZipEntry*> by_offset;
  for (const ZipEntry& entry : entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const ZipEntry* a, const ZipEntry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const ZipEntry &before = *by_offset[i - 1], &entry = *by_offset[i];
    if (before.offset + before.stored_size + kLocalSize + entry.name.size() > entry.offset) {
      return InvalidDump(path, entry.offset)
          .Expected("entries that do not overlap"_t)
          .Found("{} and {} overlap"_t(Excerpt(before.name, 80), Excerpt(entry.name, 80)));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<ZipReader> ZipReader::Open(std::string_view archive, const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(archive, path));
  ZipReader reader;
  reader.archive_ = archive;
  reader.path_ = path;
  reader.entries_.reserve(directory.count);
  const uint64_t end = directory.offset + directory.size;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.count; ++i) {
    MSPROBE_ASSIGN_OR_RETURN(DirectoryEntry found, ReadDirectoryEntry(archive, path, at, end));
    MSPROBE_RETURN_IF_ERROR(FindContent(archive, path, directory.offset, &found));
    if (!reader.by_name_.emplace(found.entry.name, reader.entries_.size()).second) {
      return InvalidDump(path, at).Expected("each name once"_t).Found("{} again"_t(found.shown));
    }
    reader.has_checksums_ = reader.has_checksums_ || found.entry.crc32 != 0;
    reader.entries_.push_back(found.entry);
    at += found.record_size;
  }
  if (at != end) {
    return InvalidDump(path, at)
        .Expected("the end of the zip directory"_t)
        .Found("{} more bytes"_t(end - at));
  }
  MSPROBE_RETURN_IF_ERROR(CheckNoOverlap(reader.entries_, path));
  return reader;
}

const ZipEntry* ZipReader::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Result<ZipContent> ZipReader::Read(const ZipEntry& entry, uint64_t max_inflated,
                                   bool verify) const {
  ZipContent content{.bytes = archive_.substr(entry.offset, entry.stored_size)};
  if (entry.deflated) {
    constexpr uint64_t kMaxRatio = 1032;  // of deflate: 258 bytes in 2 bits
    if (entry.size > max_inflated || entry.size / kMaxRatio > entry.stored_size) {
      return InvalidDump(path_, entry.offset)
          .Expected("at most {} bytes in {}"_t(
              std::min(max_inflated, (entry.stored_size + 1) * kMaxRatio), Excerpt(entry.name, 80)))
          .Found(fmt::format("{}", entry.size));
    }
    // Element data need no more alignment than malloc gives.
    std::shared_ptr<char[]> buffer(new (std::nothrow) char[std::max<uint64_t>(entry.size, 1)]);
    if (buffer == nullptr) {
      return Unsupported("{}: not enough memory to inflate {} bytes"_t(path_, entry.size));
    }
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
        inflater(libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
    if (inflater == nullptr) return Internal("out of memory in libdeflate"_t);
    size_t read = 0, written = 0;
    const libdeflate_result result =
        libdeflate_deflate_decompress_ex(inflater.get(), content.bytes.data(), content.bytes.size(),
                                         buffer.get(), entry.size, &read, &written);
    if (result != LIBDEFLATE_SUCCESS || read != content.bytes.size() || written != entry.size) {
      return InvalidDump(path_, entry.offset)
          .Expected("{} bytes of deflated data in {}"_t(entry.size, Excerpt(entry.name, 80)))
          .Found("damaged data"_t);
    }
    content.bytes = {buffer.get(), entry.size};
    content.owner = buffer;
  }
  if (verify && has_checksums_) {
    const uint32_t crc32 = Crc32(content.bytes, &ThreadPool::Default());
    if (crc32 != entry.crc32) {
      return InvalidDump(path_, entry.offset)
          .Expected("data with checksum {:08x} in {}"_t(entry.crc32, Excerpt(entry.name, 80)))
          .Found("{:08x}: the file is damaged"_t(crc32));
    }
  }
  return content;
}

}  // namespace msprobe::formats
