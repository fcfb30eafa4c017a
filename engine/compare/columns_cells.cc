// The text of each cell of a row.
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/compare/columns.h"
#include "engine/compare/columns_text.h"
#include "engine/compare/judge.h"

namespace msprobe {
namespace {

using Id = ColumnId;

std::string_view MatchName(Match value) {
  switch (value) {
    case Match::kExact:
      return "exact";
    case Match::kAligned:
      return "aligned";
    case Match::kTargetOnly:
      return "target only";
    case Match::kGoldenOnly:
      return "golden only";
  }
  return "";
}

// Shapes without the dimensions of extent 1: [1, 3] and [3] hold the same elements in the same
// order.
std::string Squeezed(std::string_view shape) {
  std::string out;
  if (shape.size() < 2) return out;
  for (std::string_view extent : Split(shape.substr(1, shape.size() - 2), ',')) {
    while (!extent.empty() && extent.front() == ' ') extent.remove_prefix(1);
    if (extent != "1" && !extent.empty()) out.append(extent) += ',';
  }
  return out;
}

}  // namespace

// Fills one row; lives for the call.
class TableFormat::Filler {
 public:
  Filler(const TableFormat& format, size_t row, TableRow* out)
      : f_(format), c_(format.comparison_), row_(row), out_(*out), r_(c_.rows[row]) {
    if (r_.target >= 0) target_ = &c_.target.leaves[r_.target];
    if (r_.golden >= 0) golden_ = &c_.golden.leaves[r_.golden];
    diff_ = MetricsOf(c_, row);
  }

  void Fill() {
    out_.text.clear();
    out_.cells.clear();
    for (const Column& column : f_.columns_) {
      const size_t start = out_.text.size();
      const CellKind kind = Write(column.id);
      out_.cells.push_back(
          {static_cast<uint32_t>(start), static_cast<uint32_t>(out_.text.size() - start), kind});
    }
  }

 private:
  CellKind Write(Id id) {
    const Measure& measure = c_.measures[row_];
    switch (id) {
      case Id::kTargetName:
        return FromDump(target_ ? target_->name : "");
      case Id::kGoldenName:
        return FromDump(golden_ ? golden_->name : "");
      case Id::kTargetDtype:
        return FromDump(target_ ? target_->dtype : "");
      case Id::kGoldenDtype:
        return FromDump(golden_ ? golden_->dtype : "");
      case Id::kTargetShape:
        return FromDump(target_ ? target_->shape : "");
      case Id::kGoldenShape:
        return FromDump(golden_ ? golden_->shape : "");
      case Id::kTargetRequiresGrad:
        return FromDump(target_ ? target_->requires_grad : "");
      case Id::kGoldenRequiresGrad:
        return FromDump(golden_ ? golden_->requires_grad : "");
      case Id::kCosine:
        return Metric(diff_ ? diff_->cosine : Diff::kNaN, Rounding::kCosine, true);
      case Id::kEuclidean:
        return Metric(diff_ ? diff_->euclidean : Diff::kNaN, Rounding::kNone, true);
      case Id::kMaxAbsError:
        return Metric(diff_ ? diff_->max_abs_error : Diff::kNaN, Rounding::kDecimals, false);
      case Id::kMaxRelativeError:
        return Metric(diff_ ? diff_->max_rel_error : Diff::kNaN, Rounding::kDecimals, false);
      case Id::kOneThousandth:
        return Metric(diff_ ? diff_->ratio_within_1e3 : Diff::kNaN, Rounding::kDecimals, true);
      case Id::kFiveThousandths:
        return Metric(diff_ ? diff_->ratio_within_5e3 : Diff::kNaN, Rounding::kDecimals, true);
      case Id::kMaxDiff:
        return Difference(0);
      case Id::kMinDiff:
        return Difference(1);
      case Id::kMeanDiff:
        return Difference(2);
      case Id::kNormDiff:
        return Difference(3);
      case Id::kMaxRel:
        return Relative(0);
      case Id::kMinRel:
        return Relative(1);
      case Id::kMeanRel:
        return Relative(2);
      case Id::kNormRel:
        return Relative(3);
      case Id::kTargetMax:
        return Statistic(target_, &Leaf::max);
      case Id::kTargetMin:
        return Statistic(target_, &Leaf::min);
      case Id::kTargetMean:
        return Statistic(target_, &Leaf::mean);
      case Id::kTargetNorm:
        return Statistic(target_, &Leaf::norm);
      case Id::kGoldenMax:
        return Statistic(golden_, &Leaf::max);
      case Id::kGoldenMin:
        return Statistic(golden_, &Leaf::min);
      case Id::kGoldenMean:
        return Statistic(golden_, &Leaf::mean);
      case Id::kGoldenNorm:
        return Statistic(golden_, &Leaf::norm);
      case Id::kTargetMd5:
        return FromDump(target_ ? ChecksumText(*target_) : "");
      case Id::kGoldenMd5:
        return FromDump(golden_ ? ChecksumText(*golden_) : "");
      case Id::kRequiresGradConsistent:
        return Keyword((target_ ? target_->requires_grad : "") ==
                               (golden_ ? golden_->requires_grad : "")
                           ? "True"
                           : "False");
      case Id::kResult:
        return Keyword(OldResultName(f_.verdicts_[row_].result));
      case Id::kErrMessage:
        AppendErrMessage(&out_.text, c_, row_, f_.verdicts_[row_]);
        return CellKind::kSentence;
      case Id::kStack:
        return Stack();
      case Id::kDataName:
        return DataName();
      case Id::kClass:
        return Keyword(ClassName(CallIndex() < c_.classes.size() ? c_.classes[CallIndex()]
                                                                 : CallClass::kUnknown));
      case Id::kVerdict:
        return Keyword(VerdictName(measure.verdict));
      case Id::kMatch:
        return Keyword(MatchName(r_.match));
      case Id::kConfidence:
        if (target_ == nullptr || golden_ == nullptr) return Keyword("N/A");
        return r_.confidence == 1 ? Keyword("1.0") : Number(r_.confidence, 2);
      case Id::kSeverity:
        return Number(measure.severity, 4);
      case Id::kReason: {
        const size_t before = out_.text.size();
        AppendReason(&out_.text, c_, row_);
        return out_.text.size() == before ? Keyword("") : CellKind::kText;
      }
      case Id::kTargetNan:
        return Count(target_ ? target_->nan_count : -1);
      case Id::kTargetInf:
        return Count(target_ ? Infinities(*target_) : -1);
      case Id::kGoldenNan:
        return Count(golden_ ? golden_->nan_count : -1);
      case Id::kGoldenInf:
        return Count(golden_ ? Infinities(*golden_) : -1);
      case Id::kRmse:
        return Number(diff_ ? diff_->rmse : Diff::kNaN);
      case Id::kMape:
        return Number(diff_ ? diff_->mape : Diff::kNaN);
      case Id::kRelativeL2:
        return Number(diff_ ? diff_->relative_l2 : Diff::kNaN);
      case Id::kMaxUlp:
        return Count(diff_ ? diff_->max_ulp : -1);
      case Id::kNonFiniteMismatch:
        return Count(diff_ ? diff_->nonfinite_mismatch : -1);
      case Id::kFirstIndex:
        return Count(diff_ ? diff_->first_index : -1);
      case Id::kWorstIndex:
        return Count(diff_ ? diff_->worst_index : -1);
      case Id::kWorstTarget:
        return WorstValue(diff_ ? diff_->worst_target : 0);
      case Id::kWorstGolden:
        return WorstValue(diff_ ? diff_->worst_golden : 0);
      case Id::kSourceLine:
        return SourceLine();
    }
    return CellKind::kWord;
  }

  uint32_t CallIndex() const { return f_.pair_of_[row_]; }

  CellKind Keyword(std::string_view text) {
    out_.text += text;
    return CellKind::kWord;
  }

  CellKind FromDump(std::string_view text) {
    if (text.empty()) return Keyword("N/A");
    out_.text += text;
    return CellKind::kText;
  }

  // A number of ours; NaN means that it does not apply.
  CellKind Number(double value, int decimals = -1) {
    if (std::isnan(value)) return Keyword("N/A");
    if (std::isinf(value)) return Keyword(value < 0 ? "-inf" : "inf");
    if (decimals >= 0) {
      AppendRounded(&out_.text, value, decimals);
    } else {
      AppendPythonFloat(&out_.text, value);
    }
    return CellKind::kNumber;
  }

  CellKind Count(int64_t value) {
    if (value < 0) return Keyword("N/A");
    AppendInteger(&out_.text, value);
    return CellKind::kNumber;
  }

  static int64_t Infinities(const Leaf& leaf) {
    return leaf.pos_inf_count < 0 || leaf.neg_inf_count < 0
               ? -1
               : leaf.pos_inf_count + leaf.neg_inf_count;
  }

  CellKind Statistic(const Leaf* leaf, std::string_view Leaf::*member) {
    if (leaf == nullptr) return Keyword("N/A");
    if (leaf->kind == LeafKind::kNone) return Keyword("None");
    const std::string_view spelled = leaf->*member;
    const std::string_view text = StatisticText(spelled);
    out_.text += text;
    if (IsPlainNumber(text)) return CellKind::kNumber;
    // A string argument, or what a hostile file has in a number's place, may hold anything.
    const bool word =
        text == "None" || text == "Nan" || text == "True" || text == "False" || text == "N/A";
    return word ? CellKind::kWord : CellKind::kText;
  }

  static bool IsPlainNumber(std::string_view text) {
    if (text.empty()) return false;
    const bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
    if (!begins) return text == " inf" || text == " -inf";
    for (const char c : text) {
      if ((c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-')
        return false;
    }
    // "-1+1" is no number, and a spreadsheet would work it out.
    const size_t sign = text.find_first_of("+-", 1);
    return sign == std::string_view::npos || text[sign - 1] == 'e' || text[sign - 1] == 'E';
  }

  // Both the difference and the relative error ask.
  const StatisticPair& Pair(int i) {
    static constexpr std::string_view Leaf::*kMembers[] = {&Leaf::max, &Leaf::min, &Leaf::mean,
                                                           &Leaf::norm};
    if (!compared_[i]) compared_[i] = Compared(kMembers[i]);
    return *compared_[i];
  }

  StatisticPair Compared(std::string_view Leaf::*member) const {
    if (target_ == nullptr || golden_ == nullptr) return {StatisticPair::Kind::kAbsent};
    const bool target_none = target_->kind == LeafKind::kNone,
               golden_none = golden_->kind == LeafKind::kNone;
    if (target_none || golden_none) {
      return {target_none && golden_none ? StatisticPair::Kind::kSame : StatisticPair::Kind::kText};
    }
    // NaN in a tensor says nothing of its elements; NaN as an argument is an argument like any
    // other.
    if (target_->kind == LeafKind::kScalar && golden_->kind == LeafKind::kScalar &&
        target_->*member == golden_->*member) {
      return {StatisticPair::Kind::kSame};
    }
    return CompareStatistic(target_->*member, golden_->*member);
  }

  CellKind Difference(int i) {
    const StatisticPair& pair = Pair(i);
    if (pair.kind != StatisticPair::Kind::kNumbers) return Special(pair.kind);
    return Number(pair.diff);
  }

  CellKind Relative(int i) {
    const StatisticPair& pair = Pair(i);
    if (pair.kind != StatisticPair::Kind::kNumbers) return Special(pair.kind);
    if (std::isinf(pair.relative)) return Keyword("inf");
    AppendPythonFloat(&out_.text, pair.relative * 100);
    out_.text += '%';
    return CellKind::kWord;
  }

  CellKind Special(StatisticPair::Kind kind) {
    switch (kind) {
      case StatisticPair::Kind::kSame:
        Keyword("0");
        return CellKind::kNumber;
      case StatisticPair::Kind::kNan:
        return Keyword("Nan");
      case StatisticPair::Kind::kPosInf:
        return Keyword("inf");
      case StatisticPair::Kind::kNegInf:
        return Keyword("-inf");
      case StatisticPair::Kind::kText:
        return Keyword("Diff");
      default:
        return Keyword("N/A");
    }
  }

  enum class Rounding { kNone, kDecimals, kCosine };

  // `many`: of no meaning for a single element.
  CellKind Metric(double value, Rounding rounding, bool many) {
    if (target_ == nullptr || golden_ == nullptr) return Keyword("unsupported");
    if (diff_ == nullptr) {
      const bool tensors = target_->kind == LeafKind::kTensor && golden_->kind == LeafKind::kTensor;
      const bool shapes = tensors && target_->shape != golden_->shape &&
                          Squeezed(target_->shape) != Squeezed(golden_->shape);
      return Keyword(shapes ? "shape unmatched" : "unsupported");
    }
    if (diff_->count == 0 && diff_->nonfinite_target == 0 && diff_->nonfinite_golden == 0) {
      return Keyword("unsupported");
    }
    const bool single = Squeezed(target_->shape).empty();
    if (single && many) return Keyword("unsupported");
    if (diff_->nonfinite_mismatch > 0) return Keyword(single ? "Nan" : "N/A");
    if (std::isnan(value)) return Keyword("Nan");
    if (std::isinf(value)) return Keyword(value < 0 ? " -inf" : " inf");
    const int decimals = rounding == Rounding::kCosine && value > 0.9999 ? 6 : 12;
    return Number(value, rounding == Rounding::kNone ? -1 : decimals);
  }

  CellKind WorstValue(double value) {
    if (diff_ == nullptr || diff_->worst_index < 0) return Keyword("N/A");
    if (std::isnan(value)) return Keyword("nan");
    return Number(value);
  }

  CellKind DataName() {
    const auto name = [](const Leaf* leaf) {
      return leaf == nullptr ? "N/A" : leaf->data_name.empty() ? "-1" : leaf->data_name;
    };
    AppendPythonList(&out_.text, {name(target_), name(golden_)});
    return CellKind::kSentence;
  }

  // On the first row of a call only, as the earlier tools have it.
  CellKind Stack() {
    const RecordPair& pair = c_.pairs[CallIndex()];
    const int32_t stack = pair.target >= 0 ? c_.target.records[pair.target].stack : -1;
    if (stack < 0 || row_ != pair.first_row) return Keyword("N/A");
    out_.text += f_.stack_texts_[stack];
    return CellKind::kSentence;
  }

  // A backward call has the line of its forward call.
  CellKind SourceLine() {
    const std::string* line = SourceOf(CallIndex());
    if (line == nullptr && CallIndex() < c_.forward_of.size() && c_.forward_of[CallIndex()] >= 0) {
      line = SourceOf(static_cast<uint32_t>(c_.forward_of[CallIndex()]));
    }
    return FromDump(line != nullptr ? std::string_view(*line) : "");
  }

  const std::string* SourceOf(uint32_t index) const {
    const RecordPair& pair = c_.pairs[index];
    const int32_t target = pair.target >= 0 ? c_.target.records[pair.target].stack : -1;
    if (target >= 0) return &f_.target_sources_[target];
    const int32_t golden = pair.golden >= 0 ? c_.golden.records[pair.golden].stack : -1;
    return golden >= 0 ? &f_.golden_sources_[golden] : nullptr;
  }

  const TableFormat& f_;
  const Comparison& c_;
  const size_t row_;
  TableRow& out_;
  const Row& r_;
  const Leaf* target_ = nullptr;
  const Leaf* golden_ = nullptr;
  const Diff* diff_ = nullptr;
  std::optional<StatisticPair> compared_[4];  // of max, min, mean, norm
};

void TableFormat::Fill(size_t row, TableRow* out) const { Filler(*this, row, out).Fill(); }

}  // namespace msprobe
