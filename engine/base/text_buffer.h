// Text that is composed of millions of short pieces. Appending costs a few instructions, where
// std::string::append makes two function calls.
//
//   TextBuffer line;
//   line += name; line += ','; line.Number(0.5);
//   Status status = file.Append(line.view());
//   line.Clear();                                  // keeps its memory
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/base/text.h"

namespace msprobe {

class TextBuffer {
 public:
  // Number of bytes after the text that may be read and written, although they are not part of it.
  static constexpr size_t kSlack = 64;

  TextBuffer() = default;
  TextBuffer(TextBuffer&& other) noexcept { *this = std::move(other); }
  TextBuffer& operator=(TextBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }

  void operator+=(std::string_view text) {
    char* to = Room(text.size());
    Copy(to, text.data(), text.size());
    size_ += text.size();
  }
  void operator+=(char c) {
    *Room(1) = c;
    ++size_;
  }
  void Number(double value) { size_ += WritePythonFloat(Room(kLongestNumber), value); }
  void Integer(int64_t value) { size_ += WriteInteger(Room(kLongestNumber), value); }

  std::string_view view() const { return {data_.get(), size_}; }
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  void Truncate(size_t size) { size_ = size; }
  void Clear() { size_ = 0; }

 private:
  char* Room(size_t more) {
    if (capacity_ - size_ < more + kSlack) Grow(more);
    return data_.get() + size_;
  }

  void Grow(size_t more) {
    const size_t wanted = 2 * capacity_ + more + 4 * kSlack;
    std::unique_ptr<char[]> data(new char[wanted]);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = wanted;
  }

  // Copies a text that is longer than one move and at most as long as two: one move from its start,
  // and one that ends at its end. They may overlap in the middle.
  template <typename Word>
  static void CopyEnds(char* to, const char* from, size_t size) {
    Word first, last;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + size - sizeof last, sizeof last);
    std::memcpy(to, &first, sizeof first);
    std::memcpy(to + size - sizeof last, &last, sizeof last);
  }
  static void Copy(char* to, const char* from, size_t size) {
    struct Word16 {
      char bytes[16];
    };
    if (size > 32) {
      std::memcpy(to, from, size);
    } else if (size >= 16) {
      CopyEnds<Word16>(to, from, size);
    } else if (size >= 8) {
      CopyEnds<uint64_t>(to, from, size);
    } else if (size >= 4) {
      CopyEnds<uint32_t>(to, from, size);
    } else if (size > 0) {
      to[0] = from[0];
      to[size / 2] = from[size / 2];
      to[size - 1] = from[size - 1];
    }
  }

  std::unique_ptr<char[]> data_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace msprobe
