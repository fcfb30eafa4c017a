#include "engine/compare/table/generation_cells.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "engine/compare/model/value_text.h"

namespace msprobe::compare {
namespace {

using Note = GenerationNote;

bool IsRatio(double kernels::Diff::*metric) {
  return metric == &kernels::Diff::ratio_within_1e3 || metric == &kernels::Diff::ratio_within_5e3;
}

}  // namespace

// NaN and infinities. The older tools put a tab after some of them, so that spreadsheets take these
// for text.
CellKind GenerationCells::NonFinite(double value) {
  if (std::isnan(value)) return Word(Is(Generation::k1) ? "nan\t" : "Nan");
  return Word(value < 0 ? "-inf\t" : "inf\t");
}

// Whether the row is a gradient that has a partner and is shown without one (HideGradients in
// generation_rules.cc).
bool GenerationCells::IsHiddenGradient() const {
  return c_.mode == Mode::kChecksum && verdict().word == GenerationWord::kAbsent && target_ &&
         golden_;
}

CellKind GenerationCells::OrNone8(CellOfSide cell, Side side) {
  if (side == Side::kGolden && IsHiddenGradient()) return Word("N/A");
  const Leaf* leaf = LeafOf(side);
  return leaf && leaf->kind == LeafKind::kNone ? Word("None") : (this->*cell)(side);
}

CellKind GenerationCells::Name8(Side side) {
  if (side == Side::kGolden && IsHiddenGradient()) return Word("N/A");
  // 1.0 puts an index after the name of every value, also after that of a keyword argument.
  const Leaf* leaf = LeafOf(side);
  const bool indexed =
      Is(Generation::k1) && leaf && leaf->slot == Slot::kKwarg && !HasTensorFile(*leaf);
  const CellKind kind = Name(side);
  if (!indexed) return kind;
  text_ += ".0";
  return CellKind::kText;
}

CellKind GenerationCells::Statistic8(Side side, int which) {
  const Leaf* leaf = LeafOf(side);
  if (leaf && leaf->kind == LeafKind::kTensor) {
    const std::string_view spelled = leaf->*kStatisticTexts[which];
    if (spelled == "NaN") return NonFinite(Diff::kNaN);
    if (spelled == "Infinity") return Word("inf\t");
    if (spelled == "-Infinity") return Word("-inf\t");
  }
  return Statistic(side, which);
}

CellKind GenerationCells::Difference8(int which) {
  const StatisticDifference pair = Subtract(which);
  if (pair.kind == StatisticDifference::Kind::kUnmatched) return Word("N/A");
  if (pair.kind == StatisticDifference::Kind::kNoNumbers)
    return Word(Is(Generation::k1) ? "None" : "N/A");
  return std::isfinite(pair.diff) ? Number(pair.diff) : NonFinite(pair.diff);
}

CellKind GenerationCells::Relative8(int which) {
  const bool first = Is(Generation::k1);
  const StatisticDifference pair = Subtract(which);
  if (pair.kind == StatisticDifference::Kind::kUnmatched) return Word("N/A");
  if (pair.kind == StatisticDifference::Kind::kNoNumbers) return Word(first ? " " : "N/A");
  if (std::isnan(pair.diff) && !first) return Word("Nan");
  if (pair.golden == 0) return Word("N/A");
  const double percent = std::abs(pair.diff / pair.golden) * 100;
  if (std::isnan(percent)) return Word("nan%");
  if (std::isinf(percent)) return Word("inf%");
  Number(percent);
  return Word("%");
}

CellKind GenerationCells::Metric8(DiffNumber metric) {
  const bool first = Is(Generation::k1), cosine = metric == &Diff::cosine;
  if (diff_ == nullptr) {
    if (Is(Generation::k1_2) && HasNote(Note::kEmpty)) return Number(0);
    if (!first || HasNote(Note::kShape)) return Metric(metric);
    if (!HasNote(Note::kEmpty)) return Word("None");
    return cosine ? Word("unsupported") : Number(0);
  }
  if (HasNote(Note::kScalar)) {
    if (metric == &Diff::max_abs_error || metric == &Diff::max_rel_error) return Metric(metric);
    return Word(first && IsRatio(metric) ? "Nan" : "unsupported");
  }
  if (HasNote(Note::kOneElement)) {  // 26 treats these as scalars
    return cosine ? Word("unsupported") : Number(Rounded(diff_->*metric, 12));
  }
  if (first && cosine && diff_->nonfinite_mismatch == 0 && diff_->cosine > 0.99999)
    return Number(1);
  return Metric(metric);
}

// Also the cell of a value whose checksum the dump does not have.
CellKind GenerationCells::Checksum8(Side side) {
  if (IsHiddenGradient()) return Word("N/A");
  const Leaf* leaf = LeafOf(side);
  if (leaf && leaf->checksum.empty()) {
    if (Is(Generation::k1)) return Word("None");
    if (Is(Generation::k1_2) && leaf->kind == LeafKind::kNone) return Word("None");
    // 1.2 takes the CRC-32 of a value's text. A process group has no such text: CRC-32 of "".
    if (Is(Generation::k1_2) && IsProcessGroup(*leaf)) return Word("00000000");
  }
  return Checksum(side);
}

CellKind GenerationCells::DataName8() {
  if (options().generation > Generation::k1_2) return DataName();
  if (!target_ || !HasTensorFile(*target_) || !golden_) return Word("-1");
  return FromDump(target_->data_name);
}

CellKind GenerationCells::MessageOfGeneration() {
  std::string message;
  AppendGenerationMessage(&message, c_, row_, verdict(), options().generation);
  if (Is(Generation::kPtdbgFirst) && diff_ && diff_->golden_zero > 0 && diff_->unequal == 0)
    message += "Cannot compare by MaxRelativeErr, 0 against 0 has none.";
  return Sentence(message);
}

// The cells of torch_npu.hooks and ptdbg_ascend.

// NaN and infinities are spelled as Python prints them.
CellKind GenerationCells::Fixed(double value, int decimals) {
  text_ += fmt::format("{:.{}f}", value, decimals);
  return std::isfinite(value) ? CellKind::kNumber : CellKind::kWord;
}

CellKind GenerationCells::NumberPkl(double value) {
  if (std::isnan(value)) return Word("nan");
  return std::isinf(value) ? Word(value < 0 ? "-inf" : "inf") : Number(value);
}

CellKind GenerationCells::StatisticPkl(Side side, int which) {
  const Leaf* leaf = LeafOf(side);
  const std::string_view spelled = leaf ? std::string_view(leaf->*kStatisticTexts[which]) : "";
  if (spelled.empty()) return Word("Nan");
  if (spelled == "NaN") return Word("nan");
  if (spelled == "Infinity") return Word("inf");
  if (spelled == "-Infinity") return Word("-inf");
  return Statistic(side, which);
}

// The mean of the relative errors (MAPE): "0.1250%". Where a golden element is 0, it is infinite,
// or NaN when the tensors are equal.
CellKind GenerationCells::PercentagePkl() {
  if (diff_->golden_zero > 0) return Word(diff_->unequal == 0 ? "nan" : "inf");
  return Word(fmt::format("{:.4f}%", diff_->mape * 100));
}

double GenerationCells::HalfCosine() const {
  return options().half_cosine ? 0.5 + 0.5 * diff_->cosine : diff_->cosine;
}

CellKind GenerationCells::MetricPkl(DiffNumber metric) {
  if (!target_ || !golden_) return Word("Nan");
  if (Is(Generation::kHooks)) return MetricHooks(metric);
  return Is(Generation::kPtdbgFirst) ? MetricPtdbgFirst(metric) : MetricPtdbg(metric);
}

// Cosine, RMSE and MAPE of torch_npu.hooks.
CellKind GenerationCells::MetricHooks(DiffNumber metric) {
  if (diff_ == nullptr) {
    const bool shape = c_.measures[row_].reason == Reason::kShapeDiffers;
    return Word(shape ? "cannot be calculated" : "nan");
  }
  if (diff_->nonfinite_target > 0 || diff_->nonfinite_golden > 0 || diff_->count == 0)
    return Word("nan");
  if (metric == &Diff::rmse) return NumberPkl(diff_->rmse);
  if (metric == &Diff::mape) return PercentagePkl();
  // A vector of zeros has no direction: no cosine, even when both tensors are zero.
  return diff_->golden_zero == diff_->count ? Word("nan") : NumberPkl(HalfCosine());
}

// The five metrics of ptdbg_ascend 0.1.
CellKind GenerationCells::MetricPtdbgFirst(DiffNumber metric) {
  if (diff_ == nullptr) return Word(HasNote(Note::kShape) ? "cannot be calculated" : "NaN");
  if (diff_->nonfinite_target > 0 || diff_->nonfinite_golden > 0 || diff_->count == 0)
    return Word("NaN");
  if (metric == &Diff::cosine) {
    if (diff_->count == 1) return Fixed(1, 6);
    return std::isnan(diff_->cosine) ? Word("NaN") : Fixed(HalfCosine(), 6);
  }
  if (metric == &Diff::rmse) return NumberPkl(diff_->rmse);
  if (metric == &Diff::mape) return PercentagePkl();
  if (metric == &Diff::max_rel_error && diff_->golden_zero > 0)
    return Word(diff_->unequal == 0 ? "NaN" : "inf");
  return Fixed(diff_->*metric, 6);
}

// Metrics of two numbers of Python, which have no tensor files.
CellKind GenerationCells::MetricOfScalars(DiffNumber metric) {
  const double golden = golden_->max_value, distance = std::abs(target_->max_value - golden);
  if (metric == &Diff::cosine) return Word("unsupported");
  if (IsRatio(metric) || std::isnan(distance)) return Word("Nan");
  if (metric == &Diff::max_abs_error) return Fixed(distance, 12);
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  return Fixed(distance / (golden == 0 ? kEpsilon : std::abs(golden)), 12);
}

// ptdbg_ascend 4 to 6.
CellKind GenerationCells::MetricPtdbg(DiffNumber metric) {
  if (diff_ == nullptr) {
    if (target_->kind == LeafKind::kScalar && golden_->kind == LeafKind::kScalar)
      return MetricOfScalars(metric);
    return Word(HasNote(Note::kShape)   ? "shape unmatched"
                : HasNote(Note::kEmpty) ? "unsupported"
                                        : "Nan");
  }
  if (diff_->nonfinite_mismatch > 0) return Word("N/A");
  const double value = diff_->*metric;
  const bool scalar = HasNote(Note::kScalar), cosine = metric == &Diff::cosine;
  if (cosine && (scalar || HasNote(Note::kOneElement))) return Word("unsupported");
  if (cosine && value > 0.99999) return Number(1);
  if (std::isnan(value) || (scalar && IsRatio(metric))) return Word("Nan");
  return IsRatio(metric) ? NumberPkl(Rounded(value, 12)) : Fixed(value, 12);
}

CellKind GenerationCells::DifferencePkl(int which) {
  const StatisticDifference pair = Subtract(which);
  return pair.kind == StatisticDifference::Kind::kNumbers ? NumberPkl(pair.diff) : Word("Nan");
}

CellKind GenerationCells::WordPkl() {
  switch (verdict().word) {
    case GenerationWord::kNone:
    case GenerationWord::kAbsent:
      return Word("Nan");
    case GenerationWord::kPass:
      return Word("Pass");
    default:
      return Word8();
  }
}

}  // namespace msprobe::compare
