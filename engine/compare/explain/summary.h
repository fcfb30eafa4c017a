// The comparison in numbers: what every report begins with.
#pragma once

#include <array>
#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct Summary {
  // differs: a value differs, or one side made a call that the other did not (and was not killed
  // before). unknown: nothing does, yet something recorded could not be judged (or nothing was
  // compared at all). noise: everything was judged, rounding apart. equal: everything was judged
  // bit-equal.
  RowVerdict verdict = RowVerdict::kUnknown;
  std::array<int64_t, 4> rows{};   // by RowVerdict
  std::array<int64_t, 5> calls{};  // by CallClass
  int64_t neutral_rows = 0;  // of the unknown rows: nothing was recorded by design (IsNeutral)
  int64_t target_only_rows = 0, golden_only_rows = 0;
  int64_t target_only_calls = 0, golden_only_calls = 0;
  int64_t aligned_calls = 0;    // paired under different names
  int64_t unreadable_rows = 0;  // tensor files missing or damaged
};
Summary Summarize(const Comparison& comparison);

}  // namespace msprobe::compare
