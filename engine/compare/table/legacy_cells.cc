#include "engine/compare/table/legacy_cells.h"

#include <cmath>

#include "engine/base/text.h"
#include "engine/compare/model/value_text.h"

namespace msprobe::compare {
namespace {

using Id = ColumnId;

CellKind Word(std::string_view text, std::string* out) {
  *out += text;
  return CellKind::kWord;
}

CellKind Number(double value, std::string* out) {
  AppendPythonFloat(out, value);
  return CellKind::kNumber;
}

// NaN and infinities, with the tab that kept spreadsheets from reading them.
CellKind NonFinite(double value, Generation generation, std::string* out) {
  if (std::isnan(value)) return Word(generation == Generation::k1 ? "nan\t" : "Nan", out);
  return Word(value < 0 ? "-inf\t" : "inf\t", out);
}

std::optional<CellKind> Statistic(const Leaf* leaf, TextRef Leaf::*member, Generation generation,
                                  std::string* out) {
  if (leaf == nullptr || leaf->kind != LeafKind::kTensor) return std::nullopt;
  const std::string_view spelled = leaf->*member;
  if (spelled == "NaN") return NonFinite(kernels::Diff::kNaN, generation, out);
  if (spelled == "Infinity") return Word("inf\t", out);
  if (spelled == "-Infinity") return Word("-inf\t", out);
  return std::nullopt;
}

// 1.0 numbers even what has a name.
std::optional<CellKind> Name(const Leaf* leaf, std::string* out) {
  if (leaf == nullptr || leaf->slot != Slot::kKwarg || HasTensorFile(*leaf)) return std::nullopt;
  (*out += leaf->name) += ".0";
  return CellKind::kText;
}

std::optional<CellKind> NoneText(const Leaf* leaf, std::string* out) {
  if (leaf == nullptr || leaf->kind != LeafKind::kNone) return std::nullopt;
  return Word("None", out);
}

}  // namespace

const Leaf* LegacyTable::Target(size_t row) const {
  return c_.rows[row].target >= 0 ? &c_.target.leaves[c_.rows[row].target] : nullptr;
}
const Leaf* LegacyTable::Golden(size_t row) const {
  return c_.rows[row].golden >= 0 ? &c_.golden.leaves[c_.rows[row].golden] : nullptr;
}

CellKind LegacyTable::Difference(size_t row, int which, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const LegacyPair pair =
      CompareLegacyStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind == LegacyPair::Kind::kUnmatched) return Word("N/A", out);
  if (pair.kind == LegacyPair::Kind::kNoNumbers) return Word(first ? "None" : "N/A", out);
  if (!std::isfinite(pair.diff)) return NonFinite(pair.diff, options_.generation, out);
  return Number(pair.diff, out);
}

CellKind LegacyTable::Relative(size_t row, int which, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const LegacyPair pair =
      CompareLegacyStatistic(Target(row), Golden(row), which, options_.generation);
  if (pair.kind == LegacyPair::Kind::kUnmatched) return Word("N/A", out);
  if (pair.kind == LegacyPair::Kind::kNoNumbers) return Word(first ? " " : "N/A", out);
  if (std::isnan(pair.diff) && !first) return Word("Nan", out);
  if (pair.golden == 0) return Word("N/A", out);
  const double percent = std::abs(pair.diff / pair.golden) * 100;
  if (std::isnan(percent)) return Word("nan%", out);
  if (std::isinf(percent)) return Word("inf%", out);
  AppendPythonFloat(out, percent);
  return Word("%", out);
}

std::optional<CellKind> LegacyTable::Metric(size_t row, Id column, std::string* out) const {
  const bool first = options_.generation == Generation::k1;
  const LegacyVerdict& v = verdicts_[row];
  const kernels::Diff* diff = MetricsOf(c_, row);
  if (diff == nullptr) {
    if (!first || v.Has(LegacyNote::kShape)) return std::nullopt;
    if (!v.Has(LegacyNote::kEmpty)) return Word("None", out);
    return column == Id::kCosine ? Word("unsupported", out) : Number(0, out);
  }
  const bool ratio = column == Id::kOneThousandth || column == Id::kFiveThousandths;
  if (v.Has(LegacyNote::kScalar)) {
    if (column == Id::kMaxAbsError || column == Id::kMaxRelativeError) return std::nullopt;
    return Word(first && ratio ? "Nan" : "unsupported", out);
  }
  if (v.Has(LegacyNote::kOneElement)) {  // 26 treats these as scalars
    if (column == Id::kCosine) return Word("unsupported", out);
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

std::optional<CellKind> LegacyTable::Cell(size_t row, Id column, std::string* out) const {
  if (IsLineTable(options_.generation)) return LineCell(row, column, out);
  const bool first = options_.generation == Generation::k1;
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
    case Id::kTargetMd5:
    case Id::kGoldenMd5: {
      const Leaf* leaf = column == Id::kTargetMd5 ? Target(row) : Golden(row);
      if (!first || leaf == nullptr || !leaf->md5.empty()) return std::nullopt;
      return Word("None", out);
    }
    case Id::kResult:
      return Word(LegacyWordText(verdicts_[row].word), out);
    case Id::kErrMessage:
      AppendLegacyMessage(out, c_, row, verdicts_[row], options_.generation);
      return CellKind::kSentence;
    case Id::kDataName: {
      if (!first) return std::nullopt;
      const Leaf* leaf = Target(row);
      const bool named = leaf != nullptr && HasTensorFile(*leaf) && Golden(row) != nullptr;
      if (!named) return Word("-1", out);
      *out += leaf->data_name;
      return CellKind::kText;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace msprobe::compare
