// The columns Result and Err_message, by the rules of msprobe 26. The rules look at all rows of a
// call together. One difference: msprobe 26 lets rows pass that its rules do not cover. Here a row
// without a partner is `unmatched`, and a row that could not be compared is `unknown`.
//
//   std::vector<Verdict26> verdicts = JudgeByRules26(comparison);
//   std::string cell;
//   // ["error: The dtype of NPU and Bench are inconsistent."]
//   AppendErrMessage(&cell, comparison, i, verdicts[i]);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

enum class Result26 : uint8_t { kPass, kUnmatched, kUnknown, kWarning, kError };
std::string_view Result26Name(Result26 result);  // "pass", "unmatched", ...

// In the order in which Err_message lists them.
enum class Rule26 : uint8_t {
  kNonFinite,   // error: target max or min is NaN or infinite, the golden's are finite
  kThousandth,  // error: tensor mode, inputs agree and this output, the worst of its call, does not
  kNormRelative,  // error: statistics, inputs within 10 % and this output beyond 50 %
  kRequiresGrad,  // error
  kScalar,        // error: a Python scalar among the inputs differs
  kDtype,         // error
  kShape,         // error
  kChecksum,      // error: both checksums are known and differ
  kOneSided,      // error: NaN or infinity among the elements on one side only, for tensors without
                  // the statistics that kNonFinite looks at
  kTenTimes,      // warning: statistics, the worst output is ten times worse than the inputs
  kCosine,        // warning: tensor mode, the worst output's cosine is 0.1 less than the inputs'
  kDtypePrecision,   // warning: both are floating point, of different precision
  kChecksumMissing,  // warning: no checksum on one side
};
inline constexpr int kRule26Count = 13;
std::string Rule26Message(Rule26 rule, const Thresholds& thresholds);
bool IsErrorRule(Rule26 rule);

struct Verdict26 {
  Result26 result = Result26::kPass;
  uint16_t rules = 0;  // bit i: Rule26 i fired
  bool Has(Rule26 rule) const { return rules >> static_cast<int>(rule) & 1; }
};

std::vector<Verdict26> JudgeByRules26(const Comparison& comparison);

// Appends a JSON list of messages: one for each rule that fired, and the reason of a row that is
// unmatched or unknown. "[]" when there is none.
void AppendErrMessage(std::string* out, const Comparison& comparison, size_t row,
                      const Verdict26& verdict);

// Appends why the row has its verdict: ReasonText() and the note. Nothing when the numbers say it.
void AppendReason(std::string* out, const Comparison& comparison, size_t row);

// The statistics of a leaf, in the order of the tables: spelled, and as numbers.
inline constexpr TextRef Leaf::*kStatisticTexts[] = {&Leaf::max, &Leaf::min, &Leaf::mean,
                                                     &Leaf::norm};
inline constexpr double Leaf::*kStatisticValues[] = {&Leaf::max_value, &Leaf::min_value,
                                                     &Leaf::mean_value, &Leaf::norm_value};

// One statistic of both sides, as the tables compare it.
struct StatisticPair {
  enum class Kind : uint8_t {
    kSame,     // both are spelled the same: the difference is 0
    kNumbers,  // diff is target - golden, relative is |diff / golden|; inf when the golden is 0
    kNan,      // Nan
    kPosInf,
    kNegInf,  // inf, -inf: the target's sign, or the opposite of the golden's
    kAbsent,  // N/A
    kText,    // Diff: a text that differs
  };
  Kind kind = Kind::kSame;
  double diff = 0, relative = 0;
};
StatisticPair CompareStatistic(std::string_view target, std::string_view golden);

}  // namespace msprobe::compare
