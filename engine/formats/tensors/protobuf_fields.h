// The fields of a message of Protocol Buffers, one after another, without its definition.
//
//   ProtobufFields fields(bytes, /*offset=*/8);
//   for (ProtobufField f; fields.Next(&f);)
//     if (f.number == 6 && f.is_bytes()) name = f.bytes;
//   if (fields.failed()) return InvalidDump(path, fields.offset()).Expected(fields.expected());
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/base/messages/message.h"

namespace msprobe::formats {

struct ProtobufField {
  uint32_t number = 0;
  uint8_t wire_type = 0;   // 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  uint64_t value = 0;      // of the wire types 0, 1 and 5
  std::string_view bytes;  // of wire type 2: text, a message, or packed numbers
  size_t offset = 0;       // of the bytes, in the file

  bool is_number() const { return wire_type == 0; }
  bool is_bytes() const { return wire_type == 2; }
};

// Never reads outside of `message`. Groups (wire types 3 and 4) are refused: proto3 has none.
class ProtobufFields {
 public:
  // `offset`: of the message in its file, for errors.
  explicit ProtobufFields(std::string_view message, size_t offset = 0)
      : rest_(message), offset_(offset) {}

  // False at the end of the message, and after an error.
  bool Next(ProtobufField* field);
  // A number of a packed field, or of a message that the caller knows to have numbers only.
  bool NextVarint(uint64_t* value);

  bool failed() const { return !expected_.empty(); }
  size_t offset() const { return offset_; }              // of what was read last
  const Message& expected() const { return expected_; }  // in place of the error; empty: none

 private:
  bool Fail(Message expected) {
    expected_ = std::move(expected);
    return false;
  }
  bool Varint(uint64_t* value);
  void Skip(size_t count) { rest_.remove_prefix(count), offset_ += count; }

  std::string_view rest_;
  size_t offset_;
  Message expected_;
};

}  // namespace msprobe::formats
