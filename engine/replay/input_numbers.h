// Elements for an input of a recorded call whose own elements were not stored: as many, of the same
// dtype, with the recorded statistics.
//
//   const InputNumbers wanted{.count = 64, .max = 2, .min = -1, .mean = 0.3, .norm = 9};
//   std::vector<std::byte> elements(wanted.bytes());
//   MakeNumbers(wanted, SeedOf("Functional.linear.3.forward.input.0", 1234), elements);
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "engine/base/status.h"
#include "engine/model/table.h"
#include "engine/tensor/dtype.h"

namespace msprobe::replay {

// Which values an operation takes where its dump has no statistics: positive ones for log, indices
// below the number of rows for embedding.
struct Domain {
  double min = -1, max = 1;
};

// What is known of the elements. NaN: that number is not known. The four statistics are those of
// the elements that are neither NaN nor infinite, and of those alone that are no extremes.
struct InputNumbers {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  DType dtype = DType::kFloat32;
  int64_t count = 0;
  double max = kNaN, min = kNaN, mean = kNaN, norm = kNaN;
  int64_t zeros = 0, nans = 0, pos_infs = 0, neg_infs = 0;
  int64_t extremes = 0;  // elements of a mask such as -1e9, all equal
  double extreme = 0;

  size_t bytes() const { return static_cast<size_t>(count) * DTypeSize(dtype); }
};

// Errors: the leaf is no tensor, its dtype has no elements of its own (float4), or its shape is too
// large for memory.
Result<InputNumbers> InputNumbersOf(const Dump& dump, int32_t leaf, const Domain& domain);

// A seed of the name of a value, and of a number that the user may choose. Equal names get equal
// numbers in any order of the calls, in any process.
uint64_t SeedOf(std::string_view name, uint64_t seed);

// Fills `out`, which has wanted.bytes() bytes. Maximum, minimum and all counts are met exactly; the
// mean and the norm are met to about 0.1 % of the range, where numbers in this range can have them.
// Integers keep between minimum and maximum, so recorded indices stay valid.
void MakeNumbers(const InputNumbers& wanted, uint64_t seed, std::span<std::byte> out);

}  // namespace msprobe::replay
