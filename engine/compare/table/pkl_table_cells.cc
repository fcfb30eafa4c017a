// The cells of the tables of torch_npu.hooks and ptdbg_ascend.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/compare/model/value_text.h"
#include "engine/compare/table/legacy_cells.h"

namespace msprobe::compare {
namespace {

using Id = ColumnId;
constexpr std::string_view kAbsent = "Nan", kNotCalculated = "cannot be calculated";

CellKind Word(std::string_view text, std::string* out) {
  *out += text;
  return CellKind::kWord;
}

// NaN and infinities are spelled as Python prints them.
CellKind Fixed(double value, int decimals, std::string* out) {
  *out += fmt::format("{:.{}f}", value, decimals);
  return std::isfinite(value) ? CellKind::kNumber : CellKind::kWord;
}

CellKind Number(double value, std::string* out) {
  if (std::isnan(value)) return Word("nan", out);
  if (std::isinf(value)) return Word(value < 0 ? "-inf" : "inf", out);
  AppendPythonFloat(out, value);
  return CellKind::kNumber;
}

// A relative error against a golden of 0: of equal zeros there is none to speak of.
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

std::optional<CellKind> Statistic(const Leaf* leaf, int which, std::string* out) {
  constexpr TextRef Leaf::*kTexts[] = {&Leaf::max, &Leaf::min, &Leaf::mean, &Leaf::norm};
  if (leaf == nullptr) return Word(kAbsent, out);
  const std::string_view spelled = leaf->*kTexts[which];
  if (spelled.empty()) return Word(kAbsent, out);
  if (spelled == "NaN") return Word("nan", out);
  if (spelled == "Infinity") return Word("inf", out);
  if (spelled == "-Infinity") return Word("-inf", out);
  return std::nullopt;
}

// Mean of the relative errors, as text in percent.
CellKind Percentage(const kernels::Diff& diff, std::string* out) {
  if (diff.golden_zero > 0) return Number(ErrorAgainstZero(diff), out);
  *out += fmt::format("{:.4f}%", diff.mape * 100);
  return CellKind::kWord;
}

}  // namespace

// Cosine, RMSE and MAPE of torch_npu.hooks.
CellKind LegacyTable::HooksMetric(size_t row, Id column, std::string* out) const {
  const kernels::Diff* diff = MetricsOf(c_, row);
  if (diff == nullptr) {
    return Word(c_.measures[row].reason == Reason::kShapeDiffers ? kNotCalculated : "nan", out);
  }
  if (HasNonFinite(*diff) || diff->count == 0) return Word("nan", out);
  if (column == Id::kRmse) return Number(diff->rmse, out);
  if (column == Id::kMape) return Percentage(*diff, out);
  // A vector of zeros has no direction, be the other the same.
  if (diff->golden_zero == diff->count) return Word("nan", out);
  return Number(options_.half_cosine ? 0.5 + 0.5 * diff->cosine : diff->cosine, out);
}

// The five metrics of ptdbg_ascend 0.1.
CellKind LegacyTable::FirstPtdbgMetric(size_t row, Id column, std::string* out) const {
  const kernels::Diff* diff = MetricsOf(c_, row);
  if (diff == nullptr) {
    return Word(verdicts_[row].Has(LegacyNote::kShape) ? kNotCalculated : "NaN", out);
  }
  if (HasNonFinite(*diff) || diff->count == 0) return Word("NaN", out);
  switch (column) {
    case Id::kCosine:
      if (diff->count == 1) return Fixed(1, 6, out);
      if (std::isnan(diff->cosine)) return Word("NaN", out);
      return Fixed(options_.half_cosine ? 0.5 + 0.5 * diff->cosine : diff->cosine, 6, out);
    case Id::kRmse:
      return Number(diff->rmse, out);
    case Id::kMape:
      return Percentage(*diff, out);
    case Id::kMaxRelativeError:
      if (diff->golden_zero == 0) return Fixed(diff->max_rel_error, 6, out);
      return Word(diff->unequal == 0 ? "NaN" : "inf", out);
    default:
      return Fixed(diff->max_abs_error, 6, out);
  }
}

// Python's numbers, which have no files.
CellKind LegacyTable::ScalarMetric(size_t row, Id column, std::string* out) const {
  const double target = Target(row)->max_value, golden = Golden(row)->max_value;
  const double distance = std::abs(target - golden);
  if (column == Id::kCosine) return Word("unsupported", out);
  const bool ratio = column == Id::kOneThousandth || column == Id::kFiveThousandths;
  if (ratio || std::isnan(distance)) return Word(kAbsent, out);
  if (column == Id::kMaxAbsError) return Fixed(distance, 12, out);
  constexpr double kEpsilon = 0x1p-52;
  return Fixed(distance / (golden == 0 ? kEpsilon : std::abs(golden)), 12, out);
}

// ptdbg_ascend 4 to 6.
CellKind LegacyTable::PtdbgMetric(size_t row, Id column, std::string* out) const {
  const LegacyVerdict& v = verdicts_[row];
  const kernels::Diff* diff = MetricsOf(c_, row);
  if (diff == nullptr) {
    if (IsScalarPair(Target(row), Golden(row))) return ScalarMetric(row, column, out);
    return Word(v.Has(LegacyNote::kShape)   ? "shape unmatched"
                : v.Has(LegacyNote::kEmpty) ? "unsupported"
                                            : kAbsent,
                out);
  }
  if (diff->nonfinite_mismatch > 0) return Word("N/A", out);
  const bool scalar = v.Has(LegacyNote::kScalar);
  const auto ratio = [&](double value) {
    return scalar || std::isnan(value) ? Word(kAbsent, out) : Number(Rounded(value, 12), out);
  };
  const auto error = [&](double value) {
    return std::isnan(value) ? Word(kAbsent, out) : Fixed(value, 12, out);
  };
  switch (column) {
    case Id::kCosine:
      if (scalar || v.Has(LegacyNote::kOneElement)) return Word("unsupported", out);
      return diff->cosine > 0.99999 ? Number(1, out) : error(diff->cosine);
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

CellKind LegacyTable::LineDifference(size_t row, int which, std::string* out) const {
  const LegacyPair pair =
      CompareLegacyStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind != LegacyPair::Kind::kNumbers) return Word(kAbsent, out);
  return Number(pair.diff, out);
}

CellKind LegacyTable::LineWord(size_t row, std::string* out) const {
  switch (verdicts_[row].word) {
    case LegacyWord::kNone:
    case LegacyWord::kAbsent:
      return Word(kAbsent, out);
    case LegacyWord::kPass:
      return Word("Pass", out);
    default:
      return Word(LegacyWordText(verdicts_[row].word), out);
  }
}

std::optional<CellKind> LegacyTable::LineCell(size_t row, Id column, std::string* out) const {
  const Leaf *target = Target(row), *golden = Golden(row);
  switch (column) {
    case Id::kTargetName:
    case Id::kTargetDtype:
    case Id::kTargetShape:
    case Id::kTargetMd5:
      return target == nullptr ? std::optional(Word(kAbsent, out)) : std::nullopt;
    case Id::kGoldenName:
    case Id::kGoldenDtype:
    case Id::kGoldenShape:
    case Id::kGoldenMd5:
      return golden == nullptr ? std::optional(Word(kAbsent, out)) : std::nullopt;
    case Id::kCosine:
    case Id::kRmse:
    case Id::kMape:
    case Id::kMaxAbsError:
    case Id::kMaxRelativeError:
    case Id::kOneThousandth:
    case Id::kFiveThousandths:
      if (target == nullptr || golden == nullptr) return Word(kAbsent, out);
      if (options_.generation == Generation::kHooks) return HooksMetric(row, column, out);
      if (options_.generation == Generation::kPtdbgFirst) return FirstPtdbgMetric(row, column, out);
      return PtdbgMetric(row, column, out);
    case Id::kMaxDiff:
    case Id::kMinDiff:
    case Id::kMeanDiff:
    case Id::kNormDiff:
      return LineDifference(row, static_cast<int>(column) - static_cast<int>(Id::kMaxDiff), out);
    case Id::kTargetMax:
    case Id::kTargetMin:
    case Id::kTargetMean:
    case Id::kTargetNorm:
      return Statistic(target, static_cast<int>(column) - static_cast<int>(Id::kTargetMax), out);
    case Id::kGoldenMax:
    case Id::kGoldenMin:
    case Id::kGoldenMean:
    case Id::kGoldenNorm:
      return Statistic(golden, static_cast<int>(column) - static_cast<int>(Id::kGoldenMax), out);
    case Id::kResult:
      return LineWord(row, out);
    case Id::kErrMessage:
      AppendLegacyMessage(out, c_, row, verdicts_[row], options_.generation);
      if (const kernels::Diff* diff = MetricsOf(c_, row);
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
