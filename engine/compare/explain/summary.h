// The comparison in numbers. Every report begins with them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The verdict of a whole comparison, from the best to the worst.
enum class RunVerdict : uint8_t {
  kEqual,      // all values were judged equal
  kNoise,      // all values were judged, and differences are no larger than rounding explains
  kStructure,  // all values with a partner agree, but one run made calls that the other did not
               // make, or passed other values; their results lead to values that agree
  kUnknown,    // nothing differs, but a recorded value could not be judged, or (nearly) nothing was
               // compared (ComparedTooLittle)
  kDiffers,    // a value differs, or a call that only one run made has results that are compared
               // nowhere (Decided::compared_nowhere)
};

struct Summary {
  RunVerdict verdict = RunVerdict::kUnknown;
  std::array<int64_t, 4> rows{};   // by RowVerdict
  std::array<int64_t, 5> calls{};  // by CallClass
  // How many values were compared, and how many each side has, without those that say nothing
  // against a run.
  int64_t compared = 0, target_values = 0, golden_values = 0;
  int64_t neutral_rows = 0;  // unknown rows that say nothing against a run (IsNeutral)
  // Of them, values that the runs pass or compute in another form; values that differ, and no
  // result of the step depends on it; values of which rounding explains nearly anything.
  int64_t other_forms = 0, without_effect = 0, too_wide = 0;
  int64_t target_only_rows = 0, golden_only_rows = 0;
  int64_t target_only_calls = 0, golden_only_calls = 0;
  // Calls of one run that the other has inside compiled code; not among those of one run only.
  int64_t compiled_calls = 0;
  int64_t aligned_calls = 0;    // paired under different names
  int64_t unreadable_rows = 0;  // tensor files missing or damaged
  // Calls without a partner whose results are not compared, and the first of them (an index
  // into Comparison::pairs; -1: there is none). Counted when no value differs.
  int64_t calls_compared_nowhere = 0;
  int32_t first_compared_nowhere = -1;
};
Summary Summarize(const Comparison& comparison);

std::string_view RunVerdictName(RunVerdict verdict);  // "equal", "noise", "structure", ...
Message WordOf(RunVerdict verdict);                   // the same for people
// Whether so few values of one side could be compared that nothing is known of the run: less than a
// tenth. A compiled module is one call, and its eager partner has hundreds.
bool ComparedTooLittle(const Summary& summary);
// "9 of 205 values compared", of the side that has more values; "" when all were compared.
Message DescribeCompared(const Summary& summary);
// Whether the two runs are the same, apart from rounding.
bool Agrees(RunVerdict verdict);

// Why no value at all was judged, such as "a dump without records says nothing about a run". ""
// when a value was judged.
Message WhyNothingWasJudged(const Comparison& comparison);

// The same as an error that names the dumps: kInvalidArgument with what to do, or ok when a value
// was judged.
Status CheckSomethingWasJudged(const Comparison& comparison);

}  // namespace msprobe::compare
