// The verdict of a row as msprobe 1.0, 1.2 and 8 gave it: the word in `Accuracy Reached or Not` or
// `Result`, the sentences of Err_message, the color of the row.
//
//   std::vector<GenerationVerdict> verdicts = JudgeByGeneration(comparison, options);
//   AppendGenerationMessage(&cell, comparison, i, verdicts[i], Generation::k8);
//
// A row that could not be compared is not a pass here either: NaN on both sides is None, not Yes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/thresholds.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/tables/xlsx.h"

namespace msprobe::compare {

enum class GenerationWord : uint8_t {
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
std::string_view GenerationWordText(GenerationWord word);

// In the order in which Err_message has them.
enum class GenerationNote : uint8_t {
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
  kNonFinitePlaces,  // NaN or infinities at different places
  kGoldenZero,       // one side is zero everywhere: no cosine
  kTargetZero,
  kDtype,
  kDoubleCheck,
  // The rules that color rows. In Err_message each has a line of its own.
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
inline constexpr int kGenerationNoteCount = 24;

struct GenerationVerdict {
  GenerationWord word = GenerationWord::kNothing;
  formats::RowColor color = formats::RowColor::kNone;
  uint32_t notes = 0;  // bit i: GenerationNote i
  // Generation 1.2: the rules that color this row. A rule is listed once for each input for which
  // it holds.
  std::unique_ptr<std::vector<GenerationNote>> colored_by;
  bool Has(GenerationNote note) const { return notes >> static_cast<int>(note) & 1; }
  void Add(GenerationNote note) { notes |= uint32_t{1} << static_cast<int>(note); }
};

// One verdict for each row.
std::vector<GenerationVerdict> JudgeByGeneration(const Comparison& comparison,
                                                 const TableOptions& options);

void AppendGenerationMessage(std::string* out, const Comparison& comparison, size_t row,
                             const GenerationVerdict& verdict, Generation generation);

// The limits that the row is judged with. The result may be *scratch.
const Thresholds& ThresholdsOfRow(const Comparison& comparison, size_t row, Thresholds* scratch);

// Whether the leaf names a tensor file ("-1" means that there is none).
bool HasTensorFile(const Leaf& leaf);

// Target minus golden of one statistic, as these tables have it.
struct StatisticDifference {
  enum class Kind : uint8_t { kNumbers, kNoNumbers, kUnmatched };
  Kind kind = Kind::kUnmatched;
  double target = 0, golden = 0, diff = 0;  // kNumbers; they may be NaN or infinite
};
// `which`: 0 max, 1 min, 2 mean, 3 norm. Null leaves: no partner.
StatisticDifference SubtractStatistic(const Leaf* target, const Leaf* golden, int which,
                                      Generation generation);

}  // namespace msprobe::compare
