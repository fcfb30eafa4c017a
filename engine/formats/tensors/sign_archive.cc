#include "engine/formats/tensors/sign_archive.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <vector>

#include "engine/formats/archive/byte_order.h"

namespace msprobe::formats {
namespace {

// Of an array of `bytes` unsigned bytes, as NumPy writes it.
std::string NpyPrefix(uint64_t bytes) {
  constexpr size_t kAll = 128;  // enough for any number of 64 bits
  std::string text =
      fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", bytes);
  text.resize(kAll - 10 - 1, ' ');
  text += '\n';
  std::string prefix("\x93NUMPY\x01\x00", 8);
  AppendLittle<uint16_t>(&prefix, static_cast<uint16_t>(text.size()));
  return prefix + text;
}

// Zip readers refuse some names: a name that is unsafe as a path gets "%2F" for '/', and so on.
std::string EntryName(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || c == '\\' || c == ':' || c == '%' || byte < 0x20 || byte == 0x7f) {
      text += fmt::format("%{:02X}", byte);
    } else {
      text += c;
    }
  }
  return text + ".npy";
}

int64_t PackedSize(int64_t count) { return count / 8 + (count % 8 != 0); }

}  // namespace

void PackSigns(std::span<const uint8_t> elements, uint8_t* bits) {
  constexpr uint64_t kLow = 0x0101010101010101, kRest = 0x7f7f7f7f7f7f7f7f;
  const auto pack = [](const uint8_t* p) {
    uint64_t word = LoadLittle<uint64_t>(reinterpret_cast<const char*>(p));
    word = (((word & kRest) + kRest) | word) >> 7 & kLow;  // any byte that is not zero becomes 1
    return static_cast<uint8_t>(word * 0x8040201008040201 >> 56);  // the first byte: highest bit
  };
  const size_t whole = elements.size() / 8, rest = elements.size() % 8;
  for (size_t i = 0; i < whole; ++i) bits[i] = pack(elements.data() + 8 * i);
  if (rest == 0) return;
  uint8_t last[8] = {};
  std::memcpy(last, elements.data() + 8 * whole, rest);
  bits[whole] = pack(last);
}

Result<SignWriter> SignWriter::Create(const std::string& path) {
  SignWriter writer;
  MSPROBE_ASSIGN_OR_RETURN(writer.file_, AtomicFile::Create(path));
  return writer;
}

Status SignWriter::Add(std::string_view name, std::span<const uint8_t> elements) {
  if (!names_.emplace(name).second) return Status::Ok();
  std::string content = NpyPrefix((elements.size() + 7) / 8);
  const size_t prefix = content.size();
  content.resize(prefix + (elements.size() + 7) / 8);
  PackSigns(elements, reinterpret_cast<uint8_t*>(content.data()) + prefix);
  zip_.Begin(EntryName(name), content.size());
  const std::string header = zip_.Take();
  zip_.End(Crc32(content));
  return file_.Write({header, content});
}

Status SignWriter::Finish() {
  zip_.Finish();
  MSPROBE_RETURN_IF_ERROR(file_.Write({zip_.Take()}));
  return file_.Commit();
}

Result<SignArchive> SignArchive::Open(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(ZipReader zip, ZipReader::Open(file.bytes(), path));
  SignArchive archive;
  archive.opened_ = std::make_shared<const Opened>(Opened{std::move(file), std::move(zip)});
  return archive;
}

bool SignArchive::Has(std::string_view name) const {
  return opened_->zip.Find(EntryName(name)) != nullptr;
}

Result<SignBits> SignArchive::Read(std::string_view name, int64_t count) const {
  const std::string& path = opened_->file.path();
  const ZipEntry* entry = opened_->zip.Find(EntryName(name));
  if (entry == nullptr) {
    return InvalidDump(path).Expected("directions of {}"_t(Excerpt(name, 200)));
  }
  const std::string prefix = NpyPrefix(static_cast<uint64_t>(PackedSize(count)));
  const uint64_t expected = prefix.size() + static_cast<uint64_t>(PackedSize(count));
  const auto wrong = [&](Message found) {
    return InvalidDump(path, entry->offset)
        .Expected("the bits of {} elements, for {}"_t(count, Excerpt(name, 200)))
        .Found(std::move(found));
  };
  if (entry->deflated) return wrong("compressed bytes"_t);
  if (entry->size != expected)
    return wrong("an entry of {} bytes instead of {}"_t(entry->size, expected));
  MSPROBE_ASSIGN_OR_RETURN(const ZipContent content, opened_->zip.Read(*entry, expected));
  if (!content.bytes.starts_with(prefix)) return wrong("another header"_t);
  return SignBits{reinterpret_cast<const uint8_t*>(content.bytes.data()) + prefix.size(), count};
}

}  // namespace msprobe::formats
