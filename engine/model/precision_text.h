// In which dtypes a call was to compute, as dumps spell it: the default dtype, and that of autocast
// on each kind of device where it is on. The provenance of the header has it as the step began,
// entries have it where it is another one.
//
//   DefaultDTypeIn("float32, autocast cpu bfloat16");   // "float32"
//   for (const Autocast& on : AutocastsIn("float32, autocast cpu bfloat16")) Use(on.device,
//       on.dtype);
#pragma once

#include <string_view>
#include <vector>

namespace msprobe {

inline constexpr std::string_view kPrecision = "precision";  // the key, of both

struct Autocast {
  std::string_view device, dtype;  // "cpu", "bfloat16"; views into the text
  bool operator==(const Autocast&) const = default;
};

std::string_view DefaultDTypeIn(std::string_view precision);
// Parts of another form, of a later version, are passed over.
std::vector<Autocast> AutocastsIn(std::string_view precision);

}  // namespace msprobe
