#include "engine/formats/tensors/tensor_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/archive/zip.h"

namespace msprobe::formats {
namespace {

constexpr std::string_view kPackMagic = "MSPRPACK", kLogMagic = "MSPRPLOG", kEndMagic = "MSPRPEND";
constexpr uint32_t kVersion = 1, kRecordMagic = 0x534e4554;  // "TENS"
constexpr uint64_t kFixed = 40;                              // of a record's header
constexpr uint64_t kChecked = 8;  // bytes of a header before those that its checksum covers
constexpr size_t kMaxName = 65535;

uint64_t HeaderBytes(uint64_t dims, uint64_t dtype, uint64_t name) {
  return kFixed + dims * sizeof(int64_t) + dtype + name;
}

void AppendStart(std::string* out, std::string_view magic, const PackId& id) {
  *out += magic;
  AppendLittle<uint32_t>(out, kVersion);
  AppendLittle<uint32_t>(out, 0);
  out->append(id.data(), id.size());
}

// Whether the header is one of ours; `id` gets its id.
bool TakeStart(std::string_view bytes, std::string_view magic, PackId* id) {
  if (bytes.size() < kPackHeaderBytes || !bytes.starts_with(magic) ||
      LoadLittle<uint32_t>(bytes.data() + 8) != kVersion)
    return false;
  std::copy_n(bytes.data() + 16, id->size(), id->data());
  return true;
}

}  // namespace

bool IsPackName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return c == '/' || static_cast<unsigned char>(c) < 32 || c == 127;
         });
}

bool LooksLikeTensorPack(std::string_view bytes) { return bytes.starts_with(kPackMagic); }

std::string PackHeader(const PackId& id) {
  std::string out;
  AppendStart(&out, kPackMagic, id);
  out.resize(kPackHeaderBytes);
  return out;
}

std::string PackLogHeader(const PackId& id, uint64_t base) {
  std::string out;
  AppendStart(&out, kLogMagic, id);
  AppendLittle<uint64_t>(&out, base);
  out.resize(kPackHeaderBytes);
  return out;
}

std::string PackRecordHeader(const PackEntry& entry) {
  const std::string_view dtype = DTypeShortName(entry.dtype);
  const uint64_t size = PadPack(HeaderBytes(entry.shape.size(), dtype.size(), entry.name.size()));
  std::string out;
  out.reserve(size);
  AppendLittle<uint32_t>(&out, kRecordMagic);
  AppendLittle<uint32_t>(&out, 0);
  AppendLittle<uint32_t>(&out, static_cast<uint32_t>(size));
  AppendLittle<uint32_t>(&out, entry.crc32);
  AppendLittle<uint64_t>(&out, entry.offset);
  AppendLittle<uint64_t>(&out, entry.size);
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(entry.shape.size()));
  AppendLittle<uint8_t>(&out, static_cast<uint8_t>(dtype.size()));
  AppendLittle<uint16_t>(&out, static_cast<uint16_t>(entry.name.size()));
  AppendLittle<uint32_t>(&out, 0);
  for (const int64_t extent : entry.shape) AppendLittle<int64_t>(&out, extent);
  out.append(dtype).append(entry.name);
  out.resize(size);
  const uint32_t crc = Crc32(std::string_view(out).substr(kChecked));
  std::memcpy(out.data() + 4, &crc, sizeof(crc));
  return out;
}

std::string PackIndex(std::string headers, uint64_t count, uint64_t at) {
  std::string out = std::move(headers);
  const uint32_t crc = Crc32(out);
  AppendLittle<uint64_t>(&out, at);
  AppendLittle<uint64_t>(&out, count);
  AppendLittle<uint32_t>(&out, crc);
  AppendLittle<uint32_t>(&out, kVersion);
  out += kEndMagic;
  return out;
}

std::optional<PackEntry> TensorPack::ParseRecord(std::string_view bytes,
                                                 uint64_t* header_size) const {
  if (bytes.size() < kPackAlignment || LoadLittle<uint32_t>(bytes.data()) != kRecordMagic)
    return std::nullopt;
  const uint64_t size = LoadLittle<uint32_t>(bytes.data() + 8);
  const auto dims = static_cast<uint8_t>(bytes[32]), dtype_size = static_cast<uint8_t>(bytes[33]);
  const uint64_t name_size = LoadLittle<uint16_t>(bytes.data() + 34);
  if (size > bytes.size() || size != PadPack(HeaderBytes(dims, dtype_size, name_size)) ||
      dims > kMaxTensorDimensions ||
      Crc32(bytes.substr(kChecked, size - kChecked)) != LoadLittle<uint32_t>(bytes.data() + 4))
    return std::nullopt;
  PackEntry entry;
  entry.crc32 = LoadLittle<uint32_t>(bytes.data() + 12);
  entry.offset = LoadLittle<uint64_t>(bytes.data() + 16);
  entry.size = LoadLittle<uint64_t>(bytes.data() + 24);
  for (uint64_t d = 0; d < dims; ++d)
    entry.shape.push_back(LoadLittle<int64_t>(bytes.data() + kFixed + d * sizeof(int64_t)));
  const std::string_view texts = bytes.substr(kFixed + dims * sizeof(int64_t));
  const std::optional<DType> dtype = DTypeFromTorchName(texts.substr(0, dtype_size));
  entry.name = texts.substr(dtype_size, name_size);
  if (!dtype || !IsPackName(entry.name)) return std::nullopt;
  entry.dtype = *dtype;
  const Result<int64_t> expected = CheckedByteSize(*dtype, entry.shape);
  if (!expected.ok() || *expected > kMaxTensorBytes ||
      static_cast<uint64_t>(*expected) != entry.size || entry.offset % kPackAlignment != 0 ||
      entry.offset < kPackHeaderBytes)
    return std::nullopt;
  *header_size = size;
  return entry;
}

std::string_view TensorPack::At(uint64_t offset, uint64_t size) const {
  std::string_view bytes = pack_->bytes().substr(0, std::min(log_base_, end_));
  if (offset >= log_base_) bytes = log_bytes_, offset -= log_base_;
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.substr(offset, size);
}

void TensorPack::AddEntry(PackEntry entry) {
  const auto [found, is_new] = by_name_.emplace(entry.name, entries_.size());
  if (is_new) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[found->second] = std::move(entry);
  }
}

// Records one after another, from place `at` of the pack, up to the last whole one.
void TensorPack::ReadRecords(uint64_t at, std::string_view bytes) {
  while (!bytes.empty()) {
    uint64_t size = 0;
    std::optional<PackEntry> entry = ParseRecord(bytes, &size);
    if (!entry) break;
    if (entry->offset == at + size) {
      if (entry->size > bytes.size() - size) break;
      // The last tensor may lack the zeros after its elements.
      size = std::min<uint64_t>(size + PadPack(entry->size), bytes.size());
    } else if (entry->offset > at || entry->size > at - entry->offset) {
      break;
    }
    AddEntry(std::move(*entry));
    at += size;
    bytes.remove_prefix(size);
    end_ = at;
  }
  ignored_ = bytes.size();
}

Status TensorPack::ReadIndex() {
  const std::string_view bytes = pack_->bytes();
  if (bytes.size() < kPackHeaderBytes + kPackFooterBytes || !bytes.ends_with(kEndMagic))
    return Status::Ok();
  const char* footer = bytes.data() + bytes.size() - kPackFooterBytes;
  const uint64_t at = LoadLittle<uint64_t>(footer), count = LoadLittle<uint64_t>(footer + 8);
  const uint64_t index_end = bytes.size() - kPackFooterBytes;
  // A tensor's elements may end like a footer, so a footer that is wrong is no error.
  if (at < kPackHeaderBytes || at > index_end || at % kPackAlignment != 0) return Status::Ok();
  std::string_view index = bytes.substr(at, index_end - at);
  if (Crc32(index) != LoadLittle<uint32_t>(footer + 16)) return Status::Ok();
  end_ = at;
  for (uint64_t i = 0; i < count || !index.empty(); ++i) {
    uint64_t size = 0;
    std::optional<PackEntry> entry = ParseRecord(index, &size);
    if (i >= count || !entry || entry->offset > at || entry->size > at - entry->offset) {
      return InvalidDump(pack_->path(), static_cast<uint64_t>(index.data() - bytes.data()))
          .Expected("the index of {} tensors that lie before it"_t(count))
          .Found("another content after {} of them"_t(i));
    }
    AddEntry(std::move(*entry));
    index.remove_prefix(size);
  }
  complete_ = true;
  return Status::Ok();
}

// The log continues the pack from its base on, also if the pack has (a part of) these bytes
// already.
Status TensorPack::ReadLog(MappedFile log) {
  PackId id;
  const std::string_view bytes = log.bytes();
  // The log of another pack, or one whose writing has just begun, has nothing for this one.
  if (!TakeStart(bytes, kLogMagic, &id) || id != id_) return Status::Ok();
  const uint64_t base = LoadLittle<uint64_t>(bytes.data() + kPackLogBaseAt);
  const uint64_t length = LoadLittle<uint64_t>(bytes.data() + kPackLogLengthAt);
  if (length == 0) return Status::Ok();
  if (base < kPackHeaderBytes || base % kPackAlignment != 0 || base > pack_->bytes().size() ||
      length > bytes.size() - kPackHeaderBytes) {
    return InvalidDump(log.path(), kPackLogBaseAt)
        .Expected("a log that continues the {} bytes of {}"_t(pack_->bytes().size(), pack_->path()))
        .Found("{} bytes from {} on"_t(length, base));
  }
  log_ = std::make_shared<const MappedFile>(std::move(log));
  log_bytes_ = log_->bytes().substr(kPackHeaderBytes, length);
  log_base_ = base;
  return Status::Ok();
}

Result<TensorPack> TensorPack::Open(const std::string& folder, std::string_view name) {
  TensorPack pack;
  // The log first: it is removed after the pack has its index.
  Result<MappedFile> log = MappedFile::OpenBelow(folder, std::string(name) + kPackLogSuffix);
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenBelow(folder, name));
  pack.pack_ = std::make_shared<const MappedFile>(std::move(file));
  const std::string_view bytes = pack.pack_->bytes();
  if (!TakeStart(bytes, kPackMagic, &pack.id_)) {
    return InvalidDump(pack.path(), 0)
        .Expected("a pack of tensors of version {}"_t(kVersion))
        .Found(bytes.empty() ? "an empty file"_t : Excerpt(bytes.substr(0, 16), 16));
  }
  MSPROBE_RETURN_IF_ERROR(pack.ReadIndex());
  if (pack.complete_) return pack;
  if (log.ok()) MSPROBE_RETURN_IF_ERROR(pack.ReadLog(std::move(*log)));
  const uint64_t size = std::min<uint64_t>(bytes.size(), pack.log_base_);
  pack.ReadRecords(kPackHeaderBytes, bytes.substr(kPackHeaderBytes, size - kPackHeaderBytes));
  if (pack.log_ != nullptr && pack.end_ == pack.log_base_) {
    pack.ReadRecords(pack.log_base_, pack.log_bytes_);
  } else if (pack.log_ != nullptr) {
    return InvalidDump(pack.path(), pack.end_)
        .Expected("tensors up to {}, where the log continues"_t(pack.log_base_))
        .Found("another content"_t);
  }
  return pack;
}

const PackEntry* TensorPack::Find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Result<TensorFile> TensorPack::Read(const PackEntry& entry, Verify verify) const {
  const std::string_view bytes = At(entry.offset, entry.size);
  if (bytes.size() != entry.size) {
    return InvalidDump(path(), entry.offset)
        .Expected("{} bytes of {}"_t(entry.size, Excerpt(entry.name, 80)))
        .Found("the end of the tensors"_t);
  }
  TensorFile tensor{.dtype = entry.dtype,
                    .shape = entry.shape,
                    .strides = ContiguousStrides(entry.shape),
                    .data = bytes.data()};
  tensor.owner = entry.offset >= log_base_ ? log_ : pack_;
  if (bytes.empty()) tensor.data = pack_->bytes().data();
  if (verify == Verify::kByCaller) {
    tensor.crc32 = entry.crc32;
  } else if (Crc32(bytes) != entry.crc32) {
    return InvalidDump(path(), entry.offset)
        .Expected("data with checksum {:08x}"_t(entry.crc32))
        .Found("other data: the file is damaged"_t);
  }
  return tensor;
}

}  // namespace msprobe::formats
