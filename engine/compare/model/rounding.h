// What rounding explains: for each dtype the size of one rounding, and how many of them two honest
// runs may be apart.
//
//   const Rounding r = CoarserRounding("torch.float16", "torch.float32");   // float16's
//   severity = std::abs(t - g) / (r.epsilon * scale);  noise = severity <= r.explained;
//
// dtype     epsilon    explained  reason
// float64   2^-52      64         some thousand terms added in another order, a few calls deep
// float32   2^-23      64         the same: 7.6e-6 of a tensor's scale
// float16   2^-10      8          accumulated in float32, rounded a few times: 0.8 %
// bfloat16  2^-7       4          the same: 3 %
// float8    2^-3/2^-2  2          one rounding may fall to either side, on each run
// Integers, bool and text are exact.
//
// Sums over k terms add sqrt(k) roundings of the type they are accumulated in (float32 for
// everything up to float32).
#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe::compare {

enum class NumberKind : uint8_t { kFloat, kInteger, kBool, kComplex, kOther };

struct Rounding {
  NumberKind kind = NumberKind::kOther;
  double epsilon = 0;      // spacing of numbers just above 1
  double min_normal = 0;   // below this the spacing no longer shrinks
  double explained = 0;    // roundings of the table above
  double accumulator = 0;  // epsilon of the type sums run in
  std::string_view name;   // "float32"
};

// Of a dtype as dumps spell it: "torch.float32", "Float32", "float32", "<class 'float'>". Unknown
// ones are kOther and exact.
Rounding RoundingOf(std::string_view dtype);

// Of a pair: the coarser one's when both are floats (or complex). Different kinds give kOther.
Rounding CoarserRounding(std::string_view target_dtype, std::string_view golden_dtype);

// The dtype of that one, as the pair spells it.
std::string_view CoarserDType(std::string_view target_dtype, std::string_view golden_dtype);

// The dtype to judge a pair by, of which a call before it computed in `before` on one side: the
// coarsest of floats. "" for `before`: none did.
std::string_view JudgedDType(std::string_view target_dtype, std::string_view golden_dtype,
                             std::string_view before);

// Limit in units of r.epsilon for a number that sums `terms` products; 0 or 1: none.
double ExplainedRoundings(const Rounding& r, double terms, double tolerance);

}  // namespace msprobe::compare
