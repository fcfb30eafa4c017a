// Which columns a result table has, and in which order. The columns of the older tools come
// first, name for name; ours follow at the end.
//
//   for (const Column& c : ColumnsOf(comparison, {})) header.emplace_back(c.name);
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/table/table_options.h"

namespace msprobe::compare {

enum class ColumnId : uint8_t {
  // identity
  kTargetName,
  kGoldenName,
  kTargetDtype,
  kGoldenDtype,
  kTargetShape,
  kGoldenShape,
  kTargetRequiresGrad,
  kGoldenRequiresGrad,
  // tensor mode
  kCosine,
  kEuclidean,
  kMaxAbsError,
  kMaxRelativeError,
  kOneThousandth,
  kFiveThousandths,
  // statistics mode
  kMaxDiff,
  kMinDiff,
  kMeanDiff,
  kNormDiff,
  kMaxRel,
  kMinRel,
  kMeanRel,
  kNormRel,
  // both
  kTargetMax,
  kTargetMin,
  kTargetMean,
  kTargetNorm,
  kGoldenMax,
  kGoldenMin,
  kGoldenMean,
  kGoldenNorm,
  // checksums
  kTargetChecksum,
  kGoldenChecksum,
  // verdict by the rules of the older tools
  kRequiresGradConsistent,
  kResult,
  kErrMessage,
  kStack,
  kDataName,
  // ours
  kClass,
  kVerdict,
  kMatch,
  kConfidence,
  kSeverity,
  kReason,
  kTargetNan,
  kTargetPosInf,
  kTargetNegInf,
  kGoldenNan,
  kGoldenPosInf,
  kGoldenNegInf,
  kRmse,
  kMape,
  kRelativeL2,
  kMaxUlp,
  kNonFiniteMatched,
  kNonFiniteMismatch,
  kFirstPosition,
  kWorstPosition,
  kWorstTarget,
  kWorstGolden,
  kSourceLine,
};

struct Column {
  ColumnId id;
  std::string_view name;  // header text
  bool ours;              // not a column of the generation: it comes after those
};

enum class CellKind : uint8_t {
  kText,      // text of a dump or a source file: a spreadsheet must not take it for a formula
  kNumber,    // a computed number, or a number as the dump spells it; needs no quotes in csv
  kWord,      // one of the program's words: "pass", "N/A", "50.0%"; needs no quotes in csv
  kSentence,  // a sentence or list of the program; it may hold commas and quotes
};

std::vector<Column> ColumnsOf(const Comparison& comparison, const TableOptions& options);

}  // namespace msprobe::compare
