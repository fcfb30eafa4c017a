#include <utility>

#include "engine/formats/archive/byte_order.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/archive/zip_layout.h"
#include "engine/kernels/byte_checksums.h"

namespace msprobe::formats {

using namespace zip;  // NOLINT: the record constants

namespace {
constexpr uint16_t kVersion = 20;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kDate = 0x21;  // 1980-01-01, always: equal tensors make equal files
constexpr uint64_t kLimit32 = 0xffffffff;

bool Needs64(uint64_t size) { return size >= kLimit32; }
uint32_t Field32(uint64_t value) {
  return value >= kLimit32 ? kIn64 : static_cast<uint32_t>(value);
}
}  // namespace

uint32_t Crc32(std::string_view bytes, uint32_t before) {
  return kernels::UpdateCrc32(before, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

uint32_t Crc32(std::string_view bytes, ThreadPool* pool) {
  constexpr size_t kPiece = size_t{1} << 20;
  const size_t pieces = bytes.size() / kPiece;
  if (pieces < 4) return Crc32(bytes);
  std::vector<uint32_t> sums(pieces);
  pool->ParallelFor(pieces, [&](size_t i) { sums[i] = Crc32(bytes.substr(i * kPiece, kPiece)); });
  const uint32_t shift = kernels::Crc32Shift(kPiece);
  uint32_t sum = sums[0];
  for (size_t i = 1; i < pieces; ++i) sum = kernels::CombineCrc32(sum, sums[i], shift);
  return Crc32(bytes.substr(pieces * kPiece), sum);
}

void ZipComposer::Add(std::string_view name, std::string_view content, uint64_t alignment) {
  Begin(name, content.size(), alignment);
  position_ -= content.size();  // it lies in pending_, not with the caller
  pending_ += content;
  End(Crc32(content));
}

void ZipComposer::Begin(std::string_view name, uint64_t size, uint64_t alignment) {
  const bool zip64 = Needs64(size);
  entries_.push_back({std::string(name), position_ + pending_.size(), size});
  std::string extra;
  if (zip64) {
    // With a descriptor the sizes here are zero; the record says that the descriptor's are 8 bytes
    // long.
    AppendLittle<uint16_t>(&extra, kZip64Extra);
    AppendLittle<uint16_t>(&extra, 16);
    AppendLittle<uint64_t>(&extra, 0);
    AppendLittle<uint64_t>(&extra, 0);
  }
  if (alignment > 1) {
    const uint64_t unpadded = entries_.back().offset + kLocalSize + name.size() + extra.size() + 4;
    const uint64_t padding = (alignment - unpadded % alignment) % alignment;
    AppendLittle<uint16_t>(&extra, kPaddingExtra);
    AppendLittle<uint16_t>(&extra, static_cast<uint16_t>(padding));
    extra.append(padding, 'Z');
  }
  LocalHeader(name, extra, zip64);
  position_ += size;
}

void ZipComposer::End(uint32_t crc32) {
  entries_.back().crc32 = crc32;
  Descriptor();
}

void ZipComposer::BeginDeflated(std::string_view name) {
  entries_.push_back({std::string(name), position_ + pending_.size(), 0});
  entries_.back().deflated = true;
  LocalHeader(name, "", false);
}

void ZipComposer::EndDeflated(uint32_t crc32, uint64_t stored_size, uint64_t size) {
  position_ += stored_size;
  Entry& entry = entries_.back();
  entry.crc32 = crc32;
  entry.stored_size = stored_size;
  entry.size = size;
  Descriptor();
}

void ZipComposer::LocalHeader(std::string_view name, const std::string& extra, bool zip64) {
  AppendLittle<uint32_t>(&pending_, kLocalHeader);
  AppendLittle<uint16_t>(&pending_, zip64 ? kVersion64 : kVersion);
  AppendLittle<uint16_t>(&pending_, kFlagDescriptor | kFlagUtf8);
  AppendLittle<uint16_t>(&pending_, entries_.back().deflated ? kDeflate : kStored);
  AppendLittle<uint16_t>(&pending_, 0);  // time
  AppendLittle<uint16_t>(&pending_, kDate);
  AppendLittle<uint32_t>(&pending_, 0);  // checksum and sizes: in the descriptor
  AppendLittle<uint32_t>(&pending_, zip64 ? kIn64 : 0);
  AppendLittle<uint32_t>(&pending_, zip64 ? kIn64 : 0);
  AppendLittle<uint16_t>(&pending_, static_cast<uint16_t>(name.size()));
  AppendLittle<uint16_t>(&pending_, static_cast<uint16_t>(extra.size()));
  pending_ += name;
  pending_ += extra;
}

void ZipComposer::Descriptor() {
  const Entry& entry = entries_.back();
  AppendLittle<uint32_t>(&pending_, kDataDescriptor);
  AppendLittle<uint32_t>(&pending_, entry.crc32);
  for (const uint64_t size : {entry.stored_size, entry.size}) {
    if (Needs64(entry.size)) {
      AppendLittle<uint64_t>(&pending_, size);
    } else {
      AppendLittle<uint32_t>(&pending_, static_cast<uint32_t>(size));
    }
  }
}

void ZipComposer::Finish() {
  const uint64_t directory = position_ + pending_.size();
  for (const Entry& entry : entries_) {
    std::string extra;
    if (Needs64(entry.size)) {
      AppendLittle<uint64_t>(&extra, entry.size);
      AppendLittle<uint64_t>(&extra, entry.size);
    }
    if (Needs64(entry.offset)) AppendLittle<uint64_t>(&extra, entry.offset);
    const bool zip64 = !extra.empty();
    AppendLittle<uint32_t>(&pending_, kCentralHeader);
    AppendLittle<uint16_t>(&pending_, zip64 ? kVersion64 : kVersion);
    AppendLittle<uint16_t>(&pending_, zip64 ? kVersion64 : kVersion);
    AppendLittle<uint16_t>(&pending_, kFlagDescriptor | kFlagUtf8);
    AppendLittle<uint16_t>(&pending_, entry.deflated ? kDeflate : kStored);
    AppendLittle<uint16_t>(&pending_, 0);
    AppendLittle<uint16_t>(&pending_, kDate);
    AppendLittle<uint32_t>(&pending_, entry.crc32);
    AppendLittle<uint32_t>(&pending_, Field32(entry.stored_size));
    AppendLittle<uint32_t>(&pending_, Field32(entry.size));
    AppendLittle<uint16_t>(&pending_, static_cast<uint16_t>(entry.name.size()));
    AppendLittle<uint16_t>(&pending_, static_cast<uint16_t>(zip64 ? extra.size() + 4 : 0));
    AppendLittle<uint16_t>(&pending_, 0);  // comment
    AppendLittle<uint16_t>(&pending_, 0);  // disk
    AppendLittle<uint16_t>(&pending_, 0);  // internal attributes
    AppendLittle<uint32_t>(&pending_, 0);  // external attributes
    AppendLittle<uint32_t>(&pending_, Field32(entry.offset));
    pending_ += entry.name;
    if (zip64) {
      AppendLittle<uint16_t>(&pending_, kZip64Extra);
      AppendLittle<uint16_t>(&pending_, static_cast<uint16_t>(extra.size()));
      pending_ += extra;
    }
  }
  const uint64_t end = position_ + pending_.size();
  const uint64_t count = entries_.size();
  if (Needs64(directory) || Needs64(end - directory) || count >= 0xffff) {
    AppendLittle<uint32_t>(&pending_, kZip64End);
    AppendLittle<uint64_t>(&pending_, kZip64EndSize - 12);  // of the rest of this record
    AppendLittle<uint16_t>(&pending_, kVersion64);
    AppendLittle<uint16_t>(&pending_, kVersion64);
    AppendLittle<uint32_t>(&pending_, 0);
    AppendLittle<uint32_t>(&pending_, 0);
    AppendLittle<uint64_t>(&pending_, count);
    AppendLittle<uint64_t>(&pending_, count);
    AppendLittle<uint64_t>(&pending_, end - directory);
    AppendLittle<uint64_t>(&pending_, directory);
    AppendLittle<uint32_t>(&pending_, kZip64Locator);
    AppendLittle<uint32_t>(&pending_, 0);
    AppendLittle<uint64_t>(&pending_, end);
    AppendLittle<uint32_t>(&pending_, 1);
  }
  const uint16_t count16 = count >= 0xffff ? 0xffff : static_cast<uint16_t>(count);
  AppendLittle<uint32_t>(&pending_, kEnd);
  AppendLittle<uint16_t>(&pending_, 0);
  AppendLittle<uint16_t>(&pending_, 0);
  AppendLittle<uint16_t>(&pending_, count16);
  AppendLittle<uint16_t>(&pending_, count16);
  AppendLittle<uint32_t>(&pending_, Field32(end - directory));
  AppendLittle<uint32_t>(&pending_, Field32(directory));
  AppendLittle<uint16_t>(&pending_, 0);  // comment
}

std::string ZipComposer::Take() {
  position_ += pending_.size();
  return std::exchange(pending_, {});
}

}  // namespace msprobe::formats
