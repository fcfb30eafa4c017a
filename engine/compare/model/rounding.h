// How large differences may be that come from rounding alone: for each dtype the size of one
// rounding (epsilon), and how many roundings two correct runs may be apart (explained).
//
//   const Rounding& r = CoarserRounding(DType::kFloat16, DType::kFloat32);   // float16's
//   severity = std::abs(t - g) / (r.epsilon * scale);  noise = severity <= r.explained;
//
// dtype     epsilon    explained  reason
// float64   2^-52      64         thousands of terms, summed in another order, through a few calls
// float32   2^-23      64         the same: 7.6e-6 of a tensor's scale
// float16   2^-10      8          accumulated in float32, rounded a few times: 0.8 %
// bfloat16  2^-7       4          the same: 3 %
// float8    2^-3/2^-2  2          on each run, one rounding may go up or down
// Integers, bool and text are exact: no rounding is explained.
//
// A sum of k terms adds sqrt(k) roundings of the dtype that it is accumulated in (float32 for
// float32 and all smaller floats).
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/model/element_type.h"

namespace msprobe::compare {

enum class NumberKind : uint8_t { kFloat, kInteger, kBool, kComplex, kOther };

struct Rounding {
  NumberKind kind = NumberKind::kOther;
  double epsilon = 0;      // distance from 1 to the next larger number
  double min_normal = 0;   // smaller numbers have the same distance to the next one
  double explained = 0;    // roundings, of the table above
  double accumulator = 0;  // epsilon of the dtype that sums are accumulated in
  std::string_view name;   // "float32"
};

// The rounding of a type. An unknown type is kOther and exact.
const Rounding& RoundingOf(ElementType type);

// The coarser one of two types, when both are floats or both are complex. Different kinds give
// kOther.
const Rounding& CoarserRounding(ElementType target, ElementType golden);

// The type whose rounding CoarserRounding gives, spelled as in the pair.
ElementType CoarserType(ElementType target, ElementType golden);

// The type to judge a pair by: the coarsest of the three, when they are floats or complex.
// `noise_dtype` is the real dtype in which values before were computed; empty: there is none.
ElementType JudgedType(ElementType target, ElementType golden, ElementType noise_dtype);

// How many roundings (units of r.epsilon) are explained for a number that is a sum of `terms`
// products; 0 or 1: the number is no sum.
double ExplainedRoundings(const Rounding& r, double terms, double tolerance);

}  // namespace msprobe::compare
