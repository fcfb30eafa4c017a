#include "engine/compare/table/table_format.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_text.h"
#include "engine/compare/table/generation_cells.h"
#include "engine/dump/read/source_line.h"
#include "engine/formats/tables/csv.h"

namespace msprobe::compare {

// Writes the cells of one row.
class TableFormat::Filler {
 public:
  using Id = ColumnId;
  Filler(const TableFormat& format, size_t row, TextBuffer* text)
      : f_(format), c_(format.comparison_), row_(row), text_(*text), r_(c_.rows[row]) {
    if (r_.target >= 0) target_ = &c_.target.leaves[r_.target];
    if (r_.golden >= 0) golden_ = &c_.golden.leaves[r_.golden];
    diff_ = c_.DiffOf(row);
  }

  void Fill(std::vector<TableCell>* cells) {
    cells->clear();
    for (const Column& column : f_.columns_) {
      const size_t start = text_.size();
      const CellKind kind = WriteColumn(column);
      cells->push_back(
          {static_cast<uint32_t>(start), static_cast<uint32_t>(text_.size() - start), kind});
    }
  }

  void AppendCsv() {
    for (const Column& column : f_.columns_) {
      if (column.id == Id::kStack) {
        AppendStack(f_.stack_cells_);
      } else {
        const size_t start = text_.size();
        const CellKind kind = WriteColumn(column);
        if (kind == CellKind::kText || kind == CellKind::kSentence) {
          formats::QuoteCsvCell(&text_, start, kind == CellKind::kText);
        }
      }
      text_ += ',';
    }
    text_.data()[text_.size() - 1] = '\n';
  }

 private:
  CellKind WriteColumn(const Column& column) {
    if (f_.generation_cells_ && !column.ours) {
      std::string cell;
      const std::optional<CellKind> kind = f_.generation_cells_->Cell(row_, column.id, &cell);
      text_ += cell;
      if (kind) return *kind;
    }
    return Write(column.id);
  }

  CellKind Write(Id id) {
    const Measure& measure = c_.measures[row_];
    switch (id) {
      case Id::kTargetName:
        return FromDump(target_ ? target_->name : "");
      case Id::kGoldenName:
        return FromDump(golden_ ? golden_->name : "");
      case Id::kTargetDtype:
        return FromDump(target_ ? target_->dtype.view() : "");
      case Id::kGoldenDtype:
        return FromDump(golden_ ? golden_->dtype.view() : "");
      case Id::kTargetShape:
        return FromDump(target_ ? target_->shape.view() : "");
      case Id::kGoldenShape:
        return FromDump(golden_ ? golden_->shape.view() : "");
      case Id::kTargetRequiresGrad:
        return FromDump(target_ ? target_->requires_grad : "");
      case Id::kGoldenRequiresGrad:
        return FromDump(golden_ ? golden_->requires_grad : "");
      case Id::kCosine:
        return Metric(diff_ ? diff_->cosine : kernels::Diff::kNaN, Rounding::kCosine, true);
      case Id::kEuclidean:
        return Metric(diff_ ? diff_->euclidean : kernels::Diff::kNaN, Rounding::kNone, true);
      case Id::kMaxAbsError:
        return Metric(diff_ ? diff_->max_abs_error : kernels::Diff::kNaN, Rounding::kDecimals,
                      false);
      case Id::kMaxRelativeError:
        return Metric(diff_ ? diff_->max_rel_error : kernels::Diff::kNaN, Rounding::kDecimals,
                      false);
      case Id::kOneThousandth:
        return Metric(diff_ ? diff_->ratio_within_1e3 : kernels::Diff::kNaN, Rounding::kDecimals,
                      true);
      case Id::kFiveThousandths:
        return Metric(diff_ ? diff_->ratio_within_5e3 : kernels::Diff::kNaN, Rounding::kDecimals,
                      true);
      case Id::kMaxDiff:
      case Id::kMinDiff:
      case Id::kMeanDiff:
      case Id::kNormDiff:
        return Difference(static_cast<int>(id) - static_cast<int>(Id::kMaxDiff));
      case Id::kMaxRel:
      case Id::kMinRel:
      case Id::kMeanRel:
      case Id::kNormRel:
        return Relative(static_cast<int>(id) - static_cast<int>(Id::kMaxRel));
      case Id::kTargetMax:
      case Id::kTargetMin:
      case Id::kTargetMean:
      case Id::kTargetNorm:
        return Statistic(target_, static_cast<int>(id) - static_cast<int>(Id::kTargetMax));
      case Id::kGoldenMax:
      case Id::kGoldenMin:
      case Id::kGoldenMean:
      case Id::kGoldenNorm:
        return Statistic(golden_, static_cast<int>(id) - static_cast<int>(Id::kGoldenMax));
      case Id::kTargetChecksum:
        return FromDump(target_ ? ChecksumText(*target_) : "");
      case Id::kGoldenChecksum:
        return FromDump(golden_ ? ChecksumText(*golden_) : "");
      case Id::kRequiresGradConsistent:
        return Keyword((target_ ? target_->requires_grad : "") ==
                               (golden_ ? golden_->requires_grad : "")
                           ? "True"
                           : "False");
      case Id::kResult:
        return Keyword(Result26Name(f_.verdicts_[row_].result));
      case Id::kErrMessage:
        return ErrMessage();
      case Id::kStack:
        return AppendStack(f_.stack_texts_);
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
      case Id::kReason:
        return ReasonCell(measure);
      case Id::kTargetNan:
        return Count(target_ ? target_->counts->nan : -1);
      case Id::kTargetPosInf:
        return Count(target_ ? target_->counts->pos_inf : -1);
      case Id::kTargetNegInf:
        return Count(target_ ? target_->counts->neg_inf : -1);
      case Id::kGoldenNan:
        return Count(golden_ ? golden_->counts->nan : -1);
      case Id::kGoldenPosInf:
        return Count(golden_ ? golden_->counts->pos_inf : -1);
      case Id::kGoldenNegInf:
        return Count(golden_ ? golden_->counts->neg_inf : -1);
      case Id::kRmse:
        return Number(diff_ ? diff_->rmse : kernels::Diff::kNaN);
      case Id::kMape:
        return Number(diff_ ? diff_->mape : kernels::Diff::kNaN);
      case Id::kRelativeL2:
        return Number(diff_ ? diff_->relative_l2 : kernels::Diff::kNaN);
      case Id::kMaxUlp:
        return Count(diff_ ? diff_->max_ulp : -1);
      case Id::kNonFiniteMatched:
        return Count(diff_ ? diff_->nonfinite_matched : -1);
      case Id::kNonFiniteMismatch:
        return Count(diff_ ? diff_->nonfinite_mismatch : -1);
      case Id::kFirstPosition:
        return Position(diff_ ? diff_->first_index : -1);
      case Id::kWorstPosition:
        return Position(diff_ ? diff_->worst_index : -1);
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
    text_ += text;
    return CellKind::kWord;
  }

  CellKind FromDump(std::string_view text) {
    if (text.empty()) return Keyword("N/A");
    text_ += text;
    return CellKind::kText;
  }

  // A computed number; NaN means that it does not apply.
  CellKind Number(double value, int decimals = -1) {
    if (std::isnan(value)) return Keyword("N/A");
    if (std::isinf(value)) return Keyword(value < 0 ? "-inf" : "inf");
    text_.Number(decimals >= 0 ? Rounded(value, decimals) : value);
    return CellKind::kNumber;
  }

  CellKind ErrMessage() {
    const Verdict26& verdict = f_.verdicts_[row_];
    if (verdict.result == Result26::kPass) return Keyword("[]");
    std::string list;
    AppendErrMessage(&list, c_, row_, verdict);
    text_ += list;
    return CellKind::kSentence;
  }

  CellKind ReasonCell(const Measure& measure) {
    if (measure.reason == Reason::kNone && c_.notes.empty()) return Keyword("");
    std::string reason;
    AppendReason(&reason, c_, row_);
    text_ += reason;
    return reason.empty() ? CellKind::kWord : CellKind::kText;
  }

  CellKind Count(int64_t value) {
    if (value < 0) return Keyword("N/A");
    text_.Integer(value);
    return CellKind::kNumber;
  }

  // The position of an index in the target's shape: "[3, 17]".
  CellKind Position(int64_t index) {
    if (index < 0) return Keyword("N/A");
    text_ += IndexText(index, target_->shape);
    return CellKind::kSentence;
  }

  // Of max, min, mean, norm.
  static constexpr TextRef Leaf::*kTexts[] = {&Leaf::max, &Leaf::min, &Leaf::mean, &Leaf::norm};
  static constexpr double Leaf::*kNumbers[] = {&Leaf::max_value, &Leaf::min_value,
                                               &Leaf::mean_value, &Leaf::norm_value};

  // Whether the leaf is an empty string argument. An empty string is a value; "" alone means none.
  static bool IsEmptyText(const Leaf& leaf) {
    return leaf.kind == LeafKind::kScalar && leaf.dtype == "<class 'str'>" && leaf.value.empty();
  }

  CellKind Statistic(const Leaf* leaf, int i) {
    if (leaf == nullptr) return Keyword("N/A");
    const bool none = leaf->kind == LeafKind::kNone || leaf->type == "slice";
    if (none) return Keyword("None");
    const std::string_view spelled = leaf->*kTexts[i];
    if (IsEmptyText(*leaf)) return CellKind::kText;
    // The usual case: a finite number, spelled as in the dump.
    if (std::isfinite(leaf->*kNumbers[i]) && !spelled.empty() && spelled[0] <= '9' &&
        (spelled[0] >= '0' || spelled[0] == '-')) {
      text_ += spelled;
      return CellKind::kNumber;
    }
    const std::string_view text = StatisticText(spelled);
    text_ += text;
    if (IsPlainNumber(text)) return CellKind::kNumber;
    // Other text may be anything: a string argument, or what a hostile file has in a number's
    // place.
    const bool word =
        text == "None" || text == "Nan" || text == "True" || text == "False" || text == "N/A";
    return word ? CellKind::kWord : CellKind::kText;
  }

  const StatisticPair& Pair(int i) {
    if (!compared_[i]) compared_[i] = Compared(kTexts[i], kNumbers[i]);
    return *compared_[i];
  }

  StatisticPair Compared(TextRef Leaf::*member, double Leaf::*number) const {
    if (target_ == nullptr || golden_ == nullptr) return {StatisticPair::Kind::kAbsent};
    const bool target_none = target_->kind == LeafKind::kNone,
               golden_none = golden_->kind == LeafKind::kNone;
    if (target_none || golden_none) {
      return {target_none && golden_none ? StatisticPair::Kind::kSame : StatisticPair::Kind::kText};
    }
    // Two tensors with NaN are not known to be equal. Two plain arguments that are NaN are equal.
    if (target_->kind == LeafKind::kScalar && golden_->kind == LeafKind::kScalar &&
        target_->*member == golden_->*member) {
      return {StatisticPair::Kind::kSame};
    }
    if (IsEmptyText(*target_) || IsEmptyText(*golden_)) return {StatisticPair::Kind::kText};
    StatisticPair pair = CompareStatistic(target_->*member, golden_->*member);
    // One float32 number may be spelled with few digits on one side and more on the other: equal.
    if (pair.diff != 0 && target_->*number == golden_->*number) pair.diff = pair.relative = 0;
    return pair;
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
    const double percent = pair.relative * 100;
    if (std::isinf(percent)) return Keyword("inf%");  // beyond 1.8e308
    text_.Number(percent);
    text_ += '%';
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

  // `many`: the metric has no meaning for a tensor of one element.
  CellKind Metric(double value, Rounding rounding, bool many) {
    if (target_ == nullptr || golden_ == nullptr) return Keyword("unsupported");
    if (diff_ == nullptr) {
      const bool tensors = target_->kind == LeafKind::kTensor && golden_->kind == LeafKind::kTensor;
      const bool shapes = tensors && !target_->shape.SameWithoutOnes(golden_->shape);
      return Keyword(shapes ? "shape unmatched" : "unsupported");
    }
    if (diff_->count == 0 && diff_->nonfinite_target == 0 && diff_->nonfinite_golden == 0) {
      return Keyword("unsupported");
    }
    const bool single = target_->shape.SameWithoutOnes(Shape::Scalar());
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
    std::string list;
    AppendPythonList(&list, {name(target_), name(golden_)});
    text_ += list;
    return CellKind::kSentence;
  }

  // The stack stands in the first row of a call only, as in all generations.
  CellKind AppendStack(const std::vector<std::string>& spelled) {
    const RecordPair& pair = c_.pairs[CallIndex()];
    const int32_t stack = pair.target >= 0 ? c_.target.records[pair.target].stack : -1;
    if (stack < 0 || row_ != pair.first_row) return Keyword(f_.later_stack_);
    text_ += spelled[stack];
    return CellKind::kSentence;
  }

  // A backward call has the source line of its forward call.
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
  TextBuffer& text_;
  const Row& r_;
  const Leaf* target_ = nullptr;
  const Leaf* golden_ = nullptr;
  const kernels::Diff* diff_ = nullptr;
  std::optional<StatisticPair> compared_[4];  // of max, min, mean, norm
};

TableOptions OptionsFor(const Comparison& comparison, TableOptions options) {
  const bool both = comparison.target.dialect == Dialect::kMsprobe1_2 &&
                    comparison.golden.dialect == Dialect::kMsprobe1_2;
  if (options.recognize_1_2 && both) options.generation = Generation::k1_2;
  return options;
}

TableFormat::~TableFormat() = default;

TableFormat::TableFormat(const Comparison& comparison, const TableOptions& options)
    : comparison_(comparison),
      columns_(ColumnsOf(comparison, options)),
      pair_of_(comparison.rows.size()),
      verdicts_(JudgeByRules26(comparison)) {
  if (options.generation != Generation::k26) {
    generation_cells_ = std::make_unique<GenerationCells>(comparison, options);
    later_stack_ = options.generation <= Generation::k1_2 ? "None" : "N/A";
    if (IsPklTable(options.generation)) later_stack_ = "";
  }
  for (size_t i = 0; i < comparison.pairs.size(); ++i) {
    const RecordPair& pair = comparison.pairs[i];
    std::fill_n(pair_of_.begin() + pair.first_row, pair.row_count, static_cast<uint32_t>(i));
  }
  for (const auto& frames : comparison.target.stacks) {
    IsPklTable(options.generation) ? AppendFrameLists(&stack_texts_.emplace_back(), frames)
                                   : AppendPythonList(&stack_texts_.emplace_back(), frames);
    formats::CsvWriter cell;
    cell.NumberCell(stack_texts_.back());
    stack_cells_.emplace_back(cell.text());
    target_sources_.push_back(dump::UserSourceLine(frames));
  }
  for (const auto& frames : comparison.golden.stacks)
    golden_sources_.push_back(dump::UserSourceLine(frames));
}

formats::RowColor TableFormat::ColorOf(size_t row) const {
  if (generation_cells_) return generation_cells_->verdict(row).color;
  switch (verdicts_[row].result) {
    case Result26::kError:
      return formats::RowColor::kRed;
    case Result26::kWarning:
      return formats::RowColor::kYellow;
    case Result26::kUnmatched:
    case Result26::kUnknown:
      return formats::RowColor::kGrey;
    case Result26::kPass:
      break;
  }
  return formats::RowColor::kNone;
}

const GenerationVerdict* TableFormat::GenerationVerdictOf(size_t row) const {
  return generation_cells_ ? &generation_cells_->verdict(row) : nullptr;
}

void TableFormat::Fill(size_t row, TableRow* out) const {
  out->text.Clear();
  Filler(*this, row, &out->text).Fill(&out->cells);
}

void TableFormat::AppendCsv(size_t row, TextBuffer* out) const {
  Filler(*this, row, out).AppendCsv();
}

}  // namespace msprobe::compare
