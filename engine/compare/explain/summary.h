// The comparison in numbers. Every report begins with them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct Summary {
  // differs: a value differs, or one run made a call that the other did not make (and the other was
  // not killed before that call).
  // unknown: nothing differs, but a recorded value could not be judged, or nothing was compared.
  // noise: all values were judged, and differences are no larger than rounding explains.
  // equal: all values were judged equal.
  RowVerdict verdict = RowVerdict::kUnknown;
  std::array<int64_t, 4> rows{};   // by RowVerdict
  std::array<int64_t, 5> calls{};  // by CallClass
  int64_t neutral_rows = 0;        // unknown rows that say nothing against a run (IsNeutral)
  int64_t target_only_rows = 0, golden_only_rows = 0;
  int64_t target_only_calls = 0, golden_only_calls = 0;
  int64_t aligned_calls = 0;    // paired under different names
  int64_t unreadable_rows = 0;  // tensor files missing or damaged
};
Summary Summarize(const Comparison& comparison);

// Why no value at all was judged, such as "a dump without records says nothing about a run". ""
// when a value was judged.
std::string_view WhyNothingWasJudged(const Comparison& comparison, const Summary& summary);

// The same as an error: kInvalidArgument with what to do, or ok when a value was judged.
Status CheckSomethingWasJudged(const Comparison& comparison, const Summary& summary);

}  // namespace msprobe::compare
