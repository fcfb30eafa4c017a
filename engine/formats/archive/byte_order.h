// Little-endian integers in byte strings, at any alignment. Callers check the bounds.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace msprobe::formats {

static_assert(std::endian::native == std::endian::little,
              "file formats are read in place: little-endian hosts only");

template <typename T>
T LoadLittle(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename T>
void AppendLittle(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace msprobe::formats
