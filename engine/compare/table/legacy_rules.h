// The verdict of a row as msprobe 1.0 and 8 gave it: the word in `Accuracy Reached or Not` or
// `Result`, the sentences of Err_message, the color of the row.
//
//   std::vector<LegacyVerdict> verdicts = JudgeByLegacyRules(comparison, options);
//   AppendLegacyMessage(&cell, comparison, i, verdicts[i], Generation::k8);
//
// What they could not know is not a pass here either: NaN on both sides is None, not Yes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/thresholds.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/xlsx.h"

namespace msprobe::compare {

enum class LegacyWord : uint8_t {
  kNothing,  // "": statistics that agree
  kYes,      // tensors
  kNo,
  kNone,       // could not be compared
  kUnmatched,  // tensors of different shape
  kAbsent,     // "N/A": no partner
  kWarning,    // statistics
  kPass,       // checksums
  kDifferent,
};
std::string_view LegacyWordText(LegacyWord word);

// In the order in which Err_message has them.
enum class LegacyNote : uint8_t {
  kNoGolden,  // "No bench data matched.", or "No NPU data matched."
  kRequiresGrad,
  kNoTargetFile,
  kNoGoldenFile,
  kNoGoldenCall,  // a tensor that only the target has
  kUnreadable,
  kEmpty,
  kShape,
  kScalar,  // a tensor without dimensions
  kOneElement,
  kNonFinitePlaces,  // NaN or infinities at other places
  kGoldenZero,       // one side is zero everywhere: no cosine
  kTargetZero,
  kDtype,
  kDoubleCheck,
  // Of the rules that color rows; each on a line of its own.
  kRedNonFinite,
  kRedHuge,
  kRedThousandth,
  kRedRelative,
  kYellowMagnitude,
  kYellowThousandth,
  kYellowCosine,
  kYellowRelative,
  kYellowRequiresGrad,
};
inline constexpr int kLegacyNoteCount = 24;

struct LegacyVerdict {
  LegacyWord word = LegacyWord::kNothing;
  formats::RowColor color = formats::RowColor::kNone;
  uint32_t notes = 0;  // bit i: LegacyNote i
  bool Has(LegacyNote note) const { return notes >> static_cast<int>(note) & 1; }
  void Add(LegacyNote note) { notes |= uint32_t{1} << static_cast<int>(note); }
};

// One a row.
std::vector<LegacyVerdict> JudgeByLegacyRules(const Comparison& comparison,
                                              const TableOptions& options);

void AppendLegacyMessage(std::string* out, const Comparison& comparison, size_t row,
                         const LegacyVerdict& verdict, Generation generation);

// What the row is judged with; may be *scratch.
const Thresholds& LegacyThresholds(const Comparison& comparison, size_t row, Thresholds* scratch);

// The leaf names a tensor file ("-1" stands for none).
bool HasTensorFile(const Leaf& leaf);

// Target minus golden of one statistic, as these tables have it.
struct LegacyPair {
  enum class Kind : uint8_t { kNumbers, kNoNumbers, kUnmatched };
  Kind kind = Kind::kUnmatched;
  double target = 0, golden = 0, diff = 0;  // kNumbers; NaN and infinities among them
};
// `which`: 0 max, 1 min, 2 mean, 3 norm. Null leaves: no partner.
LegacyPair CompareLegacyStatistic(const Leaf* target, const Leaf* golden, int which,
                                  Generation generation);

}  // namespace msprobe::compare
