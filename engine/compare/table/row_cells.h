// The cells of one row: those of msprobe 26, and ours. Each method appends the text of its cell.
//
//   TextBuffer text;
//   GenerationCells cells(format, row, &text);   // adds the cells of other generations
//   const CellKind kind = cells.Severity();
#pragma once

#include <cmath>
#include <optional>
#include <string_view>

#include "engine/base/text_buffer.h"
#include "engine/compare/table/table26_rules.h"
#include "engine/compare/table/table_format.h"

namespace msprobe::compare {

enum class Side : uint8_t { kTarget, kGolden };

class RowCells {
 public:
  using Diff = kernels::Diff;

  // `quoted`: stacks are appended as cells of csv, whose quotes are made once for each stack.
  RowCells(const TableFormat& format, size_t row, TextBuffer* text, bool quoted = false)
      : f_(format),
        c_(format.comparison_),
        row_(row),
        text_(*text),
        quoted_(quoted),
        r_(c_.rows[row]),
        diff_(c_.DiffOf(row)) {
    if (r_.target >= 0) target_ = &c_.target.leaves[r_.target];
    if (r_.golden >= 0) golden_ = &c_.golden.leaves[r_.golden];
  }

  CellKind Name(Side side) { return FromDump(side, &Leaf::name); }
  CellKind RequiresGrad(Side side) { return FromDump(side, &Leaf::requires_grad); }
  CellKind Dtype(Side side) { return FromDump(LeafOf(side) ? LeafOf(side)->dtype.view() : ""); }
  CellKind ShapeText(Side side) { return FromDump(LeafOf(side) ? LeafOf(side)->shape.view() : ""); }
  CellKind Checksum(Side side);
  CellKind Metric(double Diff::*metric);
  // Of max, min, mean, norm: `which` counts from 0.
  CellKind Statistic(Side side, int which);
  CellKind Difference(int which);
  CellKind Relative(int which);
  CellKind RequiresGradConsistent();
  CellKind Result();
  CellKind ErrMessage();
  CellKind Stack();
  CellKind DataName();

  // Ours.
  CellKind Class();
  CellKind VerdictOfRow();
  CellKind MatchOfRow();
  CellKind Confidence();
  CellKind Severity();
  CellKind ReasonOfRow();
  CellKind Elements(Side side, int64_t ElementCounts::*kind) {
    return Count(LeafOf(side) ? LeafOf(side)->counts->*kind : -1);
  }
  CellKind OurMetric(double Diff::*metric) { return Number(diff_ ? diff_->*metric : Diff::kNaN); }
  CellKind OurCount(int64_t Diff::*count) { return Count(diff_ ? diff_->*count : -1); }
  CellKind Position(int64_t Diff::*index);
  CellKind WorstValue(double Diff::*value);
  CellKind SourceLine();

 protected:
  const Leaf* LeafOf(Side side) const { return side == Side::kTarget ? target_ : golden_; }
  const TableOptions& options() const { return f_.options_; }
  const GenerationVerdict& verdict() const { return f_.generation_verdicts_[row_]; }

  CellKind Word(std::string_view text) {
    text_ += text;
    return CellKind::kWord;
  }
  CellKind FromDump(std::string_view text) {
    if (text.empty()) return Word("N/A");
    text_ += text;
    return CellKind::kText;
  }
  CellKind Sentence(std::string_view text) {
    text_ += text;
    return CellKind::kSentence;
  }

  const TableFormat& f_;
  const Comparison& c_;
  const size_t row_;
  TextBuffer& text_;
  const bool quoted_;
  const Row& r_;
  const Leaf* target_ = nullptr;
  const Leaf* golden_ = nullptr;
  const Diff* diff_;

 private:
  CellKind FromDump(Side side, TextRef Leaf::*text) {
    const Leaf* leaf = LeafOf(side);
    return FromDump(leaf ? std::string_view(leaf->*text) : "");
  }
  // A computed number; NaN means that it does not apply.
  CellKind Number(double value, int decimals = -1);
  CellKind Count(int64_t value) {
    if (value < 0) return Word("N/A");
    text_.Integer(value);
    return CellKind::kNumber;
  }
  const StatisticPair& Pair(int which);
  StatisticPair Compared(int which) const;
  CellKind Special(StatisticPair::Kind kind);
  uint32_t CallIndex() const { return f_.pair_of_[row_]; }
  const std::string* SourceOf(uint32_t call) const;

  std::optional<StatisticPair> compared_[4];  // of max, min, mean, norm
};

}  // namespace msprobe::compare
