#include "engine/compare/table/generation_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/compare/model/value_text.h"

namespace msprobe::compare {
namespace {

using Id = ColumnId;

CellKind AddWord(std::string_view text, std::string* out) {
  *out += text;
  return CellKind::kWord;
}

CellKind Number(double value, std::string* out) {
  AppendPythonFloat(out, value);
  return CellKind::kNumber;
}

// NaN and infinities. The older tools put a tab after some of them, so that spreadsheets take these
// for text.
CellKind NonFinite(double value, Generation generation, std::string* out) {
  if (std::isnan(value)) return AddWord(generation == Generation::k1 ? "nan\t" : "Nan", out);
  return AddWord(value < 0 ? "-inf\t" : "inf\t", out);
}

std::optional<CellKind> Statistic(const Leaf* leaf, TextRef Leaf::*member, Generation generation,
                                  std::string* out) {
  if (leaf == nullptr || leaf->kind != LeafKind::kTensor) return std::nullopt;
  const std::string_view spelled = leaf->*member;
  if (spelled == "NaN") return NonFinite(kernels::Diff::kNaN, generation, out);
  if (spelled == "Infinity") return AddWord("inf\t", out);
  if (spelled == "-Infinity") return AddWord("-inf\t", out);
  return std::nullopt;
}

// 1.0 puts an index after the name of every value, also after that of a keyword argument.
std::optional<CellKind> Name(const Leaf* leaf, std::string* out) {
  if (leaf == nullptr || leaf->slot != Slot::kKwarg || HasTensorFile(*leaf)) return std::nullopt;
  (*out += leaf->name) += ".0";
  return CellKind::kText;
}

std::optional<CellKind> NoneText(const Leaf* leaf, std::string* out) {
  if (leaf == nullptr || leaf->kind != LeafKind::kNone) return std::nullopt;
  return AddWord("None", out);
}

}  // namespace

const Leaf* GenerationCells::Target(size_t row) const {
  return c_.rows[row].target >= 0 ? &c_.target.leaves[c_.rows[row].target] : nullptr;
}
const Leaf* GenerationCells::Golden(size_t row) const {
  return c_.rows[row].golden >= 0 ? &c_.golden.leaves[c_.rows[row].golden] : nullptr;
}

CellKind GenerationCells::Difference(size_t row, int which, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const StatisticDifference pair =
      SubtractStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind == StatisticDifference::Kind::kUnmatched) return AddWord("N/A", out);
  if (pair.kind == StatisticDifference::Kind::kNoNumbers)
    return AddWord(first ? "None" : "N/A", out);
  if (!std::isfinite(pair.diff)) return NonFinite(pair.diff, options_.generation, out);
  return Number(pair.diff, out);
}

CellKind GenerationCells::Relative(size_t row, int which, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const StatisticDifference pair =
      SubtractStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind == StatisticDifference::Kind::kUnmatched) return AddWord("N/A", out);
  if (pair.kind == StatisticDifference::Kind::kNoNumbers) return AddWord(first ? " " : "N/A", out);
  if (std::isnan(pair.diff) && !first) return AddWord("Nan", out);
  if (pair.golden == 0) return AddWord("N/A", out);
  const double percent = std::abs(pair.diff / pair.golden) * 100;
  if (std::isnan(percent)) return AddWord("nan%", out);
  if (std::isinf(percent)) return AddWord("inf%", out);
  AppendPythonFloat(out, percent);
  return AddWord("%", out);
}

std::optional<CellKind> GenerationCells::Metric(size_t row, Id column, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const GenerationVerdict& v = verdicts_[row];
  const kernels::Diff* diff = c_.DiffOf(row);
  if (diff == nullptr) {
    if (options_.generation == Generation::k1_2 && v.Has(GenerationNote::kEmpty)) {
      return Number(0, out);
    }
    if (!first || v.Has(GenerationNote::kShape)) return std::nullopt;
    if (!v.Has(GenerationNote::kEmpty)) return AddWord("None", out);
    return column == Id::kCosine ? AddWord("unsupported", out) : Number(0, out);
  }
  const bool ratio = column == Id::kOneThousandth || column == Id::kFiveThousandths;
  if (v.Has(GenerationNote::kScalar)) {
    if (column == Id::kMaxAbsError || column == Id::kMaxRelativeError) return std::nullopt;
    return AddWord(first && ratio ? "Nan" : "unsupported", out);
  }
  if (v.Has(GenerationNote::kOneElement)) {  // 26 treats these as scalars
    if (column == Id::kCosine) return AddWord("unsupported", out);
    const double value = column == Id::kEuclidean          ? diff->euclidean
                         : column == Id::kOneThousandth    ? diff->ratio_within_1e3
                         : column == Id::kFiveThousandths  ? diff->ratio_within_5e3
                         : column == Id::kMaxRelativeError ? diff->max_rel_error
                                                           : diff->max_abs_error;
    return Number(Rounded(value, 12), out);
  }
  if (first && column == Id::kCosine && diff->nonfinite_mismatch == 0 && diff->cosine > 0.99999) {
    return Number(1, out);
  }
  return std::nullopt;
}

// Whether the row is a gradient that has a partner and is shown without one (HideGradients in
// generation_rules.cc).
bool GenerationCells::IsHiddenGradient(size_t row) const {
  return c_.mode == Mode::kChecksum && verdicts_[row].word == GenerationWord::kAbsent &&
         Target(row) != nullptr && Golden(row) != nullptr;
}

// The cell of a value whose checksum the dump does not have. nullopt: the cell is as in the table
// of 26.
std::optional<CellKind> GenerationCells::Checksum(const Leaf* leaf, std::string* out) const {
  if (leaf == nullptr || !leaf->checksum.empty()) return std::nullopt;
  if (options_.generation == Generation::k1_2) {
    if (leaf->kind == LeafKind::kNone) return AddWord("None", out);
    // 1.2 takes the CRC-32 of a value's text. A process group has no such text: CRC-32 of "".
    if (IsProcessGroup(*leaf)) return AddWord("00000000", out);
  }
  if (options_.generation == Generation::k1) return AddWord("None", out);
  return std::nullopt;
}

std::optional<CellKind> GenerationCells::Cell(size_t row, Id column, std::string* out) const {
  if (IsPklTable(options_.generation)) return PklCell(row, column, out);
  const bool first = options_.generation == Generation::k1;
  if (IsHiddenGradient(row)) {
    if (column == Id::kGoldenName || column == Id::kGoldenDtype || column == Id::kGoldenShape ||
        column == Id::kTargetChecksum || column == Id::kGoldenChecksum) {
      return AddWord("N/A", out);
    }
  }
  switch (column) {
    case Id::kTargetName:
      return first ? Name(Target(row), out) : std::nullopt;
    case Id::kGoldenName:
      return first ? Name(Golden(row), out) : std::nullopt;
    case Id::kTargetDtype:
    case Id::kTargetShape:
      return NoneText(Target(row), out);
    case Id::kGoldenDtype:
    case Id::kGoldenShape:
      return NoneText(Golden(row), out);
    case Id::kCosine:
    case Id::kEuclidean:
    case Id::kMaxAbsError:
    case Id::kMaxRelativeError:
    case Id::kOneThousandth:
    case Id::kFiveThousandths:
      return Metric(row, column, out);
    case Id::kMaxDiff:
    case Id::kMinDiff:
    case Id::kMeanDiff:
    case Id::kNormDiff:
      return Difference(row, static_cast<int>(column) - static_cast<int>(Id::kMaxDiff), out);
    case Id::kMaxRel:
    case Id::kMinRel:
    case Id::kMeanRel:
    case Id::kNormRel:
      return Relative(row, static_cast<int>(column) - static_cast<int>(Id::kMaxRel), out);
    case Id::kTargetMax:
      return Statistic(Target(row), &Leaf::max, options_.generation, out);
    case Id::kTargetMin:
      return Statistic(Target(row), &Leaf::min, options_.generation, out);
    case Id::kTargetMean:
      return Statistic(Target(row), &Leaf::mean, options_.generation, out);
    case Id::kTargetNorm:
      return Statistic(Target(row), &Leaf::norm, options_.generation, out);
    case Id::kGoldenMax:
      return Statistic(Golden(row), &Leaf::max, options_.generation, out);
    case Id::kGoldenMin:
      return Statistic(Golden(row), &Leaf::min, options_.generation, out);
    case Id::kGoldenMean:
      return Statistic(Golden(row), &Leaf::mean, options_.generation, out);
    case Id::kGoldenNorm:
      return Statistic(Golden(row), &Leaf::norm, options_.generation, out);
    case Id::kTargetChecksum:
      return Checksum(Target(row), out);
    case Id::kGoldenChecksum:
      return Checksum(Golden(row), out);
    case Id::kResult:
      return AddWord(GenerationWordText(verdicts_[row].word), out);
    case Id::kErrMessage:
      AppendGenerationMessage(out, c_, row, verdicts_[row], options_.generation);
      return CellKind::kSentence;
    case Id::kDataName: {
      if (options_.generation > Generation::k1_2) return std::nullopt;
      const Leaf* leaf = Target(row);
      const bool named = leaf != nullptr && HasTensorFile(*leaf) && Golden(row) != nullptr;
      if (!named) return AddWord("-1", out);
      *out += leaf->data_name;
      return CellKind::kText;
    }
    default:
      return std::nullopt;
  }
}

// The cells of torch_npu.hooks and ptdbg_ascend.

namespace {

constexpr std::string_view kAbsent = "Nan", kNotCalculated = "cannot be calculated";

// NaN and infinities are spelled as Python prints them.
CellKind Fixed(double value, int decimals, std::string* out) {
  *out += fmt::format("{:.{}f}", value, decimals);
  return std::isfinite(value) ? CellKind::kNumber : CellKind::kWord;
}

CellKind PklNumber(double value, std::string* out) {
  if (std::isnan(value)) return AddWord("nan", out);
  if (std::isinf(value)) return AddWord(value < 0 ? "-inf" : "inf", out);
  AppendPythonFloat(out, value);
  return CellKind::kNumber;
}

// The relative error where a golden element is 0: infinite, or NaN when the tensors are equal.
double ErrorAgainstZero(const kernels::Diff& diff) {
  return diff.unequal == 0 ? kernels::Diff::kNaN : std::numeric_limits<double>::infinity();
}

bool HasNonFinite(const kernels::Diff& diff) {
  return diff.nonfinite_target > 0 || diff.nonfinite_golden > 0;
}

bool IsScalarPair(const Leaf* target, const Leaf* golden) {
  return target != nullptr && golden != nullptr && target->kind == LeafKind::kScalar &&
         golden->kind == LeafKind::kScalar;
}

std::optional<CellKind> PklStatistic(const Leaf* leaf, int which, std::string* out) {
  constexpr TextRef Leaf::*kTexts[] = {&Leaf::max, &Leaf::min, &Leaf::mean, &Leaf::norm};
  if (leaf == nullptr) return AddWord(kAbsent, out);
  const std::string_view spelled = leaf->*kTexts[which];
  if (spelled.empty()) return AddWord(kAbsent, out);
  if (spelled == "NaN") return AddWord("nan", out);
  if (spelled == "Infinity") return AddWord("inf", out);
  if (spelled == "-Infinity") return AddWord("-inf", out);
  return std::nullopt;
}

// The mean of the relative errors (MAPE): "0.1250%".
CellKind Percentage(const kernels::Diff& diff, std::string* out) {
  if (diff.golden_zero > 0) return PklNumber(ErrorAgainstZero(diff), out);
  *out += fmt::format("{:.4f}%", diff.mape * 100);
  return CellKind::kWord;
}

}  // namespace

// Cosine, RMSE and MAPE of torch_npu.hooks.
CellKind GenerationCells::HooksMetric(size_t row, Id column, std::string* out) const {
  const kernels::Diff* diff = c_.DiffOf(row);
  if (diff == nullptr) {
    return AddWord(c_.measures[row].reason == Reason::kShapeDiffers ? kNotCalculated : "nan", out);
  }
  if (HasNonFinite(*diff) || diff->count == 0) return AddWord("nan", out);
  if (column == Id::kRmse) return PklNumber(diff->rmse, out);
  if (column == Id::kMape) return Percentage(*diff, out);
  // A vector of zeros has no direction: no cosine, even when both tensors are zero.
  if (diff->golden_zero == diff->count) return AddWord("nan", out);
  return PklNumber(options_.half_cosine ? 0.5 + 0.5 * diff->cosine : diff->cosine, out);
}

// The five metrics of ptdbg_ascend 0.1.
CellKind GenerationCells::FirstPtdbgMetric(size_t row, Id column, std::string* out) const {
  const kernels::Diff* diff = c_.DiffOf(row);
  if (diff == nullptr) {
    return AddWord(verdicts_[row].Has(GenerationNote::kShape) ? kNotCalculated : "NaN", out);
  }
  if (HasNonFinite(*diff) || diff->count == 0) return AddWord("NaN", out);
  switch (column) {
    case Id::kCosine:
      if (diff->count == 1) return Fixed(1, 6, out);
      if (std::isnan(diff->cosine)) return AddWord("NaN", out);
      return Fixed(options_.half_cosine ? 0.5 + 0.5 * diff->cosine : diff->cosine, 6, out);
    case Id::kRmse:
      return PklNumber(diff->rmse, out);
    case Id::kMape:
      return Percentage(*diff, out);
    case Id::kMaxRelativeError:
      if (diff->golden_zero == 0) return Fixed(diff->max_rel_error, 6, out);
      return AddWord(diff->unequal == 0 ? "NaN" : "inf", out);
    default:
      return Fixed(diff->max_abs_error, 6, out);
  }
}

// Metrics of two numbers of Python, which have no tensor files.
CellKind GenerationCells::ScalarMetric(size_t row, Id column, std::string* out) const {
  const double target = Target(row)->max_value, golden = Golden(row)->max_value;
  const double distance = std::abs(target - golden);
  if (column == Id::kCosine) return AddWord("unsupported", out);
  const bool ratio = column == Id::kOneThousandth || column == Id::kFiveThousandths;
  if (ratio || std::isnan(distance)) return AddWord(kAbsent, out);
  if (column == Id::kMaxAbsError) return Fixed(distance, 12, out);
  constexpr double kEpsilon = 0x1p-52;
  return Fixed(distance / (golden == 0 ? kEpsilon : std::abs(golden)), 12, out);
}

// ptdbg_ascend 4 to 6.
CellKind GenerationCells::PtdbgMetric(size_t row, Id column, std::string* out) const {
  const GenerationVerdict& v = verdicts_[row];
  const kernels::Diff* diff = c_.DiffOf(row);
  if (diff == nullptr) {
    if (IsScalarPair(Target(row), Golden(row))) return ScalarMetric(row, column, out);
    return AddWord(v.Has(GenerationNote::kShape)   ? "shape unmatched"
                   : v.Has(GenerationNote::kEmpty) ? "unsupported"
                                                   : kAbsent,
                   out);
  }
  if (diff->nonfinite_mismatch > 0) return AddWord("N/A", out);
  const bool scalar = v.Has(GenerationNote::kScalar);
  const auto ratio = [&](double value) {
    return scalar || std::isnan(value) ? AddWord(kAbsent, out) : PklNumber(Rounded(value, 12), out);
  };
  const auto error = [&](double value) {
    return std::isnan(value) ? AddWord(kAbsent, out) : Fixed(value, 12, out);
  };
  switch (column) {
    case Id::kCosine:
      if (scalar || v.Has(GenerationNote::kOneElement)) return AddWord("unsupported", out);
      return diff->cosine > 0.99999 ? PklNumber(1, out) : error(diff->cosine);
    case Id::kOneThousandth:
      return ratio(diff->ratio_within_1e3);
    case Id::kFiveThousandths:
      return ratio(diff->ratio_within_5e3);
    case Id::kMaxRelativeError:
      return error(diff->max_rel_error);
    default:
      return error(diff->max_abs_error);
  }
}

CellKind GenerationCells::PklDifference(size_t row, int which, std::string* out) const {
  const StatisticDifference pair =
      SubtractStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind != StatisticDifference::Kind::kNumbers) return AddWord(kAbsent, out);
  return PklNumber(pair.diff, out);
}

CellKind GenerationCells::PklWord(size_t row, std::string* out) const {
  switch (verdicts_[row].word) {
    case GenerationWord::kNone:
    case GenerationWord::kAbsent:
      return AddWord(kAbsent, out);
    case GenerationWord::kPass:
      return AddWord("Pass", out);
    default:
      return AddWord(GenerationWordText(verdicts_[row].word), out);
  }
}

std::optional<CellKind> GenerationCells::PklCell(size_t row, Id column, std::string* out) const {
  const Leaf *target = Target(row), *golden = Golden(row);
  switch (column) {
    case Id::kTargetName:
    case Id::kTargetDtype:
    case Id::kTargetShape:
    case Id::kTargetChecksum:
      return target == nullptr ? std::optional(AddWord(kAbsent, out)) : std::nullopt;
    case Id::kGoldenName:
    case Id::kGoldenDtype:
    case Id::kGoldenShape:
    case Id::kGoldenChecksum:
      return golden == nullptr ? std::optional(AddWord(kAbsent, out)) : std::nullopt;
    case Id::kCosine:
    case Id::kRmse:
    case Id::kMape:
    case Id::kMaxAbsError:
    case Id::kMaxRelativeError:
    case Id::kOneThousandth:
    case Id::kFiveThousandths:
      if (target == nullptr || golden == nullptr) return AddWord(kAbsent, out);
      if (options_.generation == Generation::kHooks) return HooksMetric(row, column, out);
      if (options_.generation == Generation::kPtdbgFirst) return FirstPtdbgMetric(row, column, out);
      return PtdbgMetric(row, column, out);
    case Id::kMaxDiff:
    case Id::kMinDiff:
    case Id::kMeanDiff:
    case Id::kNormDiff:
      return PklDifference(row, static_cast<int>(column) - static_cast<int>(Id::kMaxDiff), out);
    case Id::kTargetMax:
    case Id::kTargetMin:
    case Id::kTargetMean:
    case Id::kTargetNorm:
      return PklStatistic(target, static_cast<int>(column) - static_cast<int>(Id::kTargetMax), out);
    case Id::kGoldenMax:
    case Id::kGoldenMin:
    case Id::kGoldenMean:
    case Id::kGoldenNorm:
      return PklStatistic(golden, static_cast<int>(column) - static_cast<int>(Id::kGoldenMax), out);
    case Id::kResult:
      return PklWord(row, out);
    case Id::kErrMessage:
      AppendGenerationMessage(out, c_, row, verdicts_[row], options_.generation);
      if (const kernels::Diff* diff = c_.DiffOf(row);
          options_.generation == Generation::kPtdbgFirst && diff != nullptr &&
          diff->golden_zero > 0 && diff->unequal == 0) {
        *out += "Cannot compare by MaxRelativeErr, 0 against 0 has none.";
      }
      return CellKind::kSentence;
    default:
      return std::nullopt;
  }
}

}  // namespace msprobe::compare
