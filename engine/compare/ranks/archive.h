// Values as bytes, for a file that the same program reads again.
//
//   ArchiveWriter out;
//   out(step, path);                              // out.bytes()
//   ArchiveReader in(out.bytes(), "out/a.bin");
//   in(step, path);
//   MSPROBE_RETURN_IF_ERROR(in.End());
//
// Numbers, texts, messages, errors and lists of them are known. Another type says once, for both
// ways, which fields it has: a template `Fields(archive, value)` in this namespace, whose value is
// `Archived<Archive, Type>&`, calls `archive(value.step, value.name)`. Integers and doubles have 8
// bytes, little-endian; a text and a list begin with their length.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/base/status.h"
#include "engine/formats/archive/byte_order.h"

namespace msprobe::compare {

class ArchiveWriter {
 public:
  static constexpr bool kReads = false;

  template <typename... Values>
  void operator()(const Values&... values) {
    (Put(values), ...);
  }
  // `last`: the last of the enumerators.
  template <typename Enum>
  void Enumerator(const Enum& value, Enum /*last*/) {
    Put(static_cast<int64_t>(value));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::integral<T>) {
      formats::AppendLittle(&bytes_, static_cast<int64_t>(value));
    } else if constexpr (std::floating_point<T>) {
      formats::AppendLittle(&bytes_, std::bit_cast<int64_t>(static_cast<double>(value)));
    } else {
      Fields(*this, value);
    }
  }
  void Put(const std::string& text) {
    Put(text.size());
    bytes_ += text;
  }
  void Put(const Message& message) { Put(message.Packed()); }
  void Put(const Status& status) {
    Put(static_cast<int64_t>(status.code()));
    if (!status.ok()) (*this)(status.AsMessage(), status.HintAsMessage());
  }
  template <typename T>
  void Put(const std::vector<T>& list) {
    Put(list.size());
    for (const T& each : list) Put(each);
  }
  template <typename T, size_t kSize>
  void Put(const std::array<T, kSize>& list) {
    for (const T& each : list) Put(each);
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }

  std::string bytes_;
};

// The bytes may be hostile: each length is checked before it is used. After the first error values
// stay as they are.
class ArchiveReader {
 public:
  static constexpr bool kReads = true;

  // `path`: of the file, for the error. The bytes outlive this object.
  ArchiveReader(std::string_view bytes, std::string path)
      : size_(bytes.size()), rest_(bytes), path_(std::move(path)) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (Take(&values), ...);
  }
  template <typename Enum>
  void Enumerator(Enum& value, Enum last) {
    int64_t number = 0;
    Take(&number);
    Expect(number >= 0 && number <= static_cast<int64_t>(last), "a number of a list"_t);
    if (status_.ok()) value = static_cast<Enum>(number);
  }
  // What has been read must hold, or the file is damaged.
  void Expect(bool holds, Message what) {
    if (holds || !status_.ok()) return;
    status_ = InvalidDump(path_, size_ - rest_.size())
                  .Expected(std::move(what))
                  .Hint("compare this part once more: the file is damaged"_t);
  }
  // Error: kInvalidDump where the bytes end too early, go on, or hold what they cannot.
  Status End() {
    Expect(rest_.empty(), "the end of the file"_t);
    return status_;
  }

 private:
  template <typename T>
  void Take(T* value) {
    if constexpr (std::integral<T>) {
      const auto number = Number<int64_t>();
      Expect(static_cast<int64_t>(static_cast<T>(number)) == number, "a smaller number"_t);
      if (status_.ok()) *value = static_cast<T>(number);
    } else if constexpr (std::floating_point<T>) {
      const auto number = std::bit_cast<double>(Number<int64_t>());
      if (status_.ok()) *value = static_cast<T>(number);
    } else {
      Fields(*this, *value);
    }
  }
  void Take(std::string* text) { *text = std::string(Text()); }
  void Take(Message* message) { *message = Message::Unpacked(Text()); }
  void Take(Status* status) {
    auto code = ErrorCode::kOk;
    Enumerator(code, ErrorCode::kInternal);
    if (code == ErrorCode::kOk) return;
    Message says, hint;
    (*this)(says, hint);
    *status = Status(code).Says(std::move(says)).Hint(std::move(hint));
  }
  template <typename T>
  void Take(std::vector<T>* list) {
    const size_t count = Count();
    list->clear();
    for (size_t i = 0; i < count && status_.ok(); ++i) Take(&list->emplace_back());
  }
  template <typename T, size_t kSize>
  void Take(std::array<T, kSize>* list) {
    for (T& each : *list) Take(&each);
  }
  template <typename T>
  void Take(std::optional<T>* value) {
    bool is_there = false;
    Take(&is_there);
    if (is_there) Take(&value->emplace());
  }

  template <typename T>
  T Number() {
    Expect(rest_.size() >= sizeof(T), "more bytes"_t);
    if (!status_.ok()) return {};
    const T number = formats::LoadLittle<T>(rest_.data());
    rest_.remove_prefix(sizeof(T));
    return number;
  }
  // Of elements that follow, of at least one byte each.
  size_t Count() {
    const auto count = Number<uint64_t>();
    Expect(count <= rest_.size(), "more bytes"_t);
    return status_.ok() ? count : 0;
  }
  std::string_view Text() {
    const size_t size = Count();
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }

  size_t size_;
  std::string_view rest_;
  std::string path_;
  Status status_;
};

// T as an archive of this kind takes it: const for a writer.
template <typename Archive, typename T>
using Archived = std::conditional_t<Archive::kReads, T, const T>;

}  // namespace msprobe::compare
