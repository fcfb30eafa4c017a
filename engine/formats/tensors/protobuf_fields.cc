#include "engine/formats/tensors/protobuf_fields.h"

#include "engine/formats/archive/byte_order.h"

namespace msprobe::formats {

bool ProtobufFields::Varint(uint64_t* value) {
  constexpr size_t kMostBytes = 10;
  *value = 0;
  for (size_t i = 0; i < kMostBytes && i < rest_.size(); ++i) {
    const auto byte = static_cast<uint8_t>(rest_[i]);
    // The tenth byte has one bit of the number.
    if (i == kMostBytes - 1 && byte > 1) break;
    *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      Skip(i + 1);
      return true;
    }
  }
  return Fail("a number of at most ten bytes, whose last byte is below 128"_t);
}

bool ProtobufFields::NextVarint(uint64_t* value) {
  return !failed() && !rest_.empty() && Varint(value);
}

bool ProtobufFields::Next(ProtobufField* field) {
  if (failed() || rest_.empty()) return false;
  uint64_t tag = 0;
  if (!Varint(&tag)) return false;
  constexpr uint64_t kMostFields = (1u << 29) - 1;
  if (tag >> 3 == 0 || tag >> 3 > kMostFields) return Fail("the number of a field before this"_t);
  *field = {.number = static_cast<uint32_t>(tag >> 3),
            .wire_type = static_cast<uint8_t>(tag & 7),
            .value = 0,
            .bytes = {},
            .offset = offset_};
  const size_t width = field->wire_type == 1 ? 8 : 4;
  switch (field->wire_type) {
    case 0:
      return Varint(&field->value);
    case 1:
    case 5:
      if (rest_.size() < width) return Fail("a number of four or eight bytes"_t);
      field->value =
          width == 8 ? LoadLittle<uint64_t>(rest_.data()) : LoadLittle<uint32_t>(rest_.data());
      Skip(width);
      return true;
    case 2: {
      uint64_t size = 0;
      if (!Varint(&size)) return false;
      if (size > rest_.size()) return Fail("as many bytes as the length of the field says"_t);
      field->bytes = rest_.substr(0, size);
      field->offset = offset_;
      Skip(size);
      return true;
    }
    default:
      return Fail("a field of proto3 before this"_t);
  }
}

}  // namespace msprobe::formats
