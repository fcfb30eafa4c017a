// Writes messages of Protocol Buffers, field by field, in their wire format.
//
//   ProtobufWriter packet;
//   packet.Integer(8, 1000);                                    // field 8: a varint
//   packet.Message(11, ProtobufWriter().Text(23, "aten::mm"));  // field 11: a message inside
//   Use(packet.bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"

namespace msprobe::exports {

class ProtobufWriter {
 public:
  ProtobufWriter& Integer(uint32_t field, uint64_t value) {
    Tag(field, 0);
    Varint(value);
    return *this;
  }
  ProtobufWriter& Double(uint32_t field, double value) {
    Tag(field, 1);
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
    return *this;
  }
  // Readers refuse text that is not UTF-8: other bytes become U+FFFD.
  ProtobufWriter& Text(uint32_t field, std::string_view text) {
    std::string valid;
    AppendValidUtf8(&valid, text);
    return Bytes(field, valid);
  }
  ProtobufWriter& Message(uint32_t field, const ProtobufWriter& message) {
    return Bytes(field, message.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  ProtobufWriter& Bytes(uint32_t field, std::string_view bytes) {
    Tag(field, 2);
    Varint(bytes.size());
    bytes_ += bytes;
    return *this;
  }
  void Tag(uint32_t field, uint32_t wire_type) { Varint(field << 3 | wire_type); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace msprobe::exports
