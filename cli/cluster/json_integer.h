// A whole number in JSON that another machine sent.
//
//   const std::optional<int64_t> task = IntegerOf(value.Member("task"), 0, 99);
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>

#include "engine/formats/text/json.h"

namespace msprobe::cli {

inline constexpr int64_t kMostInteger = int64_t{1} << 53;

// nullopt: no number without a fraction from `least` to `most`.
inline std::optional<int64_t> IntegerOf(const formats::JsonValue& value, int64_t least,
                                        int64_t most) {
  if (value.kind != formats::JsonValue::Kind::kNumber) return std::nullopt;
  int64_t number = 0;
  const char* last = value.text.data() + value.text.size();
  const auto end = std::from_chars(value.text.data(), last, number);
  const bool is_whole = end.ec == std::errc() && end.ptr == last;
  return is_whole && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace msprobe::cli
