#include "engine/compare/table/row_cells.h"

#include "engine/compare/judge/judge.h"
#include "engine/compare/model/value_text.h"

namespace msprobe::compare {
namespace {

// Whether the leaf is an empty string argument. An empty string is a value; "" alone means none.
bool IsEmptyText(const Leaf& leaf) {
  return leaf.kind == LeafKind::kScalar && leaf.dtype == "<class 'str'>" && leaf.value.empty();
}

}  // namespace

CellKind RowCells::Number(double value, int decimals) {
  if (std::isnan(value)) return Word("N/A");
  if (std::isinf(value)) return Word(value < 0 ? "-inf" : "inf");
  text_.Number(decimals >= 0 ? Rounded(value, decimals) : value);
  return CellKind::kNumber;
}

CellKind RowCells::Checksum(Side side) {
  return FromDump(LeafOf(side) ? ChecksumText(*LeafOf(side)) : "");
}

CellKind RowCells::Metric(double Diff::*metric) {
  if (target_ == nullptr || golden_ == nullptr) return Word("unsupported");
  if (diff_ == nullptr) {
    const bool tensors = target_->kind == LeafKind::kTensor && golden_->kind == LeafKind::kTensor;
    const bool shapes = tensors && !target_->shape.SameWithoutOnes(golden_->shape);
    return Word(shapes ? "shape unmatched" : "unsupported");
  }
  if (diff_->count == 0 && diff_->nonfinite_target == 0 && diff_->nonfinite_golden == 0) {
    return Word("unsupported");
  }
  const bool single = target_->shape.SameWithoutOnes(Shape::Scalar());
  const bool of_one =  // has a meaning for a tensor of one element
      metric == &Diff::max_abs_error || metric == &Diff::max_rel_error;
  if (single && !of_one) return Word("unsupported");
  if (diff_->nonfinite_mismatch > 0) return Word(single ? "Nan" : "N/A");
  const double value = diff_->*metric;
  if (std::isnan(value)) return Word("Nan");
  if (std::isinf(value)) return Word(value < 0 ? " -inf" : " inf");
  if (metric == &Diff::euclidean) return Number(value);
  return Number(value, metric == &Diff::cosine && value > 0.9999 ? 6 : 12);
}

CellKind RowCells::Statistic(Side side, int which) {
  const Leaf* leaf = LeafOf(side);
  if (leaf == nullptr) return Word("N/A");
  const bool none = leaf->kind == LeafKind::kNone || leaf->type == "slice";
  if (none) return Word("None");
  const std::string_view spelled = leaf->*kStatisticTexts[which];
  if (IsEmptyText(*leaf)) return CellKind::kText;
  // The usual case: a finite number, spelled as in the dump.
  if (std::isfinite(leaf->*kStatisticValues[which]) && !spelled.empty() && spelled[0] <= '9' &&
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

const StatisticPair& RowCells::Pair(int which) {
  if (!compared_[which]) compared_[which] = Compared(which);
  return *compared_[which];
}

StatisticPair RowCells::Compared(int which) const {
  if (target_ == nullptr || golden_ == nullptr) return {StatisticPair::Kind::kAbsent};
  const bool target_none = target_->kind == LeafKind::kNone,
             golden_none = golden_->kind == LeafKind::kNone;
  if (target_none || golden_none) {
    return {target_none && golden_none ? StatisticPair::Kind::kSame : StatisticPair::Kind::kText};
  }
  const std::string_view target = target_->*kStatisticTexts[which],
                         golden = golden_->*kStatisticTexts[which];
  // Two tensors with NaN are not known to be equal. Two plain arguments that are NaN are equal.
  if (target_->kind == LeafKind::kScalar && golden_->kind == LeafKind::kScalar &&
      target == golden) {
    return {StatisticPair::Kind::kSame};
  }
  if (IsEmptyText(*target_) || IsEmptyText(*golden_)) return {StatisticPair::Kind::kText};
  StatisticPair pair = CompareStatistic(target, golden);
  // One float32 number may be spelled with few digits on one side and more on the other: equal.
  if (pair.diff != 0 && target_->*kStatisticValues[which] == golden_->*kStatisticValues[which])
    pair.diff = pair.relative = 0;
  return pair;
}

CellKind RowCells::Difference(int which) {
  const StatisticPair& pair = Pair(which);
  if (pair.kind != StatisticPair::Kind::kNumbers) return Special(pair.kind);
  return Number(pair.diff);
}

CellKind RowCells::Relative(int which) {
  const StatisticPair& pair = Pair(which);
  if (pair.kind != StatisticPair::Kind::kNumbers) return Special(pair.kind);
  if (std::isinf(pair.relative)) return Word("inf");
  const double percent = pair.relative * 100;
  if (std::isinf(percent)) return Word("inf%");  // beyond 1.8e308
  text_.Number(percent);
  return Word("%");
}

CellKind RowCells::Special(StatisticPair::Kind kind) {
  switch (kind) {
    case StatisticPair::Kind::kSame:
      Word("0");
      return CellKind::kNumber;
    case StatisticPair::Kind::kNan:
      return Word("Nan");
    case StatisticPair::Kind::kPosInf:
      return Word("inf");
    case StatisticPair::Kind::kNegInf:
      return Word("-inf");
    case StatisticPair::Kind::kText:
      return Word("Diff");
    default:
      return Word("N/A");
  }
}

CellKind RowCells::RequiresGradConsistent() {
  const std::string_view target = target_ ? target_->requires_grad : "",
                         golden = golden_ ? golden_->requires_grad : "";
  return Word(target == golden ? "True" : "False");
}

CellKind RowCells::Result() { return Word(Result26Name(f_.verdicts_[row_].result)); }

CellKind RowCells::ErrMessage() {
  const Verdict26& verdict = f_.verdicts_[row_];
  if (verdict.result == Result26::kPass) return Word("[]");
  std::string list;
  AppendErrMessage(&list, c_, row_, verdict);
  return Sentence(list);
}

// The stack stands in the first row of a call only, as in all generations.
CellKind RowCells::Stack() {
  const RecordPair& pair = c_.pairs[CallIndex()];
  const int32_t stack = pair.target >= 0 ? c_.target.records[pair.target].stack : -1;
  if (stack < 0 || !f_.IsFirstOfCall(row_)) return Word(f_.later_stack_);
  return quoted_ ? Word(f_.stack_cells_[stack]) : Sentence(f_.stack_texts_[stack]);
}

CellKind RowCells::DataName() {
  const auto name = [](const Leaf* leaf) {
    return leaf == nullptr ? "N/A" : leaf->data_name.empty() ? "-1" : leaf->data_name;
  };
  std::string list;
  AppendPythonList(&list, {name(target_), name(golden_)});
  return Sentence(list);
}

CellKind RowCells::Class() {
  const uint32_t call = CallIndex();
  return Word(ClassName(call < c_.classes.size() ? c_.classes[call] : CallClass::kUnknown));
}

CellKind RowCells::VerdictOfRow() { return Word(VerdictName(c_.measures[row_].verdict)); }

CellKind RowCells::MatchOfRow() { return Word(MatchName(r_.match)); }

CellKind RowCells::Confidence() {
  if (target_ == nullptr || golden_ == nullptr) return Word("N/A");
  return r_.confidence == 1 ? Word("1.0") : Number(r_.confidence, 2);
}

CellKind RowCells::Severity() { return Number(c_.measures[row_].severity, 4); }

CellKind RowCells::ReasonOfRow() {
  if (c_.measures[row_].reason == Reason::kNone && c_.notes.empty()) return CellKind::kWord;
  std::string reason;
  AppendReason(&reason, c_, row_);
  text_ += reason;
  return reason.empty() ? CellKind::kWord : CellKind::kText;
}

// The position of an index in the target's shape: "[3, 17]".
CellKind RowCells::Position(int64_t Diff::*index) {
  const int64_t at = diff_ ? diff_->*index : -1;
  return at < 0 ? Word("N/A") : Sentence(IndexText(at, target_->shape));
}

CellKind RowCells::WorstValue(double Diff::*value) {
  if (diff_ == nullptr || diff_->worst_index < 0) return Word("N/A");
  return std::isnan(diff_->*value) ? Word("nan") : Number(diff_->*value);
}

// A backward call has the source line of its forward call.
CellKind RowCells::SourceLine() {
  const std::string* line = SourceOf(CallIndex());
  if (line == nullptr && CallIndex() < c_.forward_of.size() && c_.forward_of[CallIndex()] >= 0) {
    line = SourceOf(static_cast<uint32_t>(c_.forward_of[CallIndex()]));
  }
  return FromDump(line != nullptr ? std::string_view(*line) : "");
}

const std::string* RowCells::SourceOf(uint32_t call) const {
  const RecordPair& pair = c_.pairs[call];
  const int32_t target = pair.target >= 0 ? c_.target.records[pair.target].stack : -1;
  if (target >= 0) return &f_.target_sources_[target];
  const int32_t golden = pair.golden >= 0 ? c_.golden.records[pair.golden].stack : -1;
  return golden >= 0 ? &f_.golden_sources_[golden] : nullptr;
}

}  // namespace msprobe::compare
