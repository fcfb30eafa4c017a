// The records of a zip archive, as far as we read and write them (APPNOTE.TXT 6.3.x, section 4.3).
#pragma once

#include <cstddef>
#include <cstdint>

namespace msprobe::formats::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDataDescriptor = 0x08074b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kZip64End = 0x06064b50;
inline constexpr uint32_t kZip64Locator = 0x07064b50;
inline constexpr uint32_t kEnd = 0x06054b50;

// Fixed parts, in bytes.
inline constexpr size_t kLocalSize = 30;
inline constexpr size_t kCentralSize = 46;
inline constexpr size_t kZip64EndSize = 56;
inline constexpr size_t kZip64LocatorSize = 20;
inline constexpr size_t kEndSize = 22;

inline constexpr uint16_t kFlagEncrypted = 1 << 0;
inline constexpr uint16_t kFlagDescriptor = 1 << 3;  // sizes and checksum follow the content
inline constexpr uint16_t kFlagUtf8 = 1 << 11;
inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kDeflate = 8;
inline constexpr uint16_t kZip64Extra = 0x0001;
inline constexpr uint16_t kPaddingExtra = 0x4246;  // "FB": what torch pads with
inline constexpr uint32_t kIn64 = 0xffffffff;  // a 32-bit field whose value is in the zip64 record

}  // namespace msprobe::formats::zip
