// The cells in which the tables of other generations differ from those of msprobe 26. Names that
// end in 8 are those of msprobe 1.0, 1.2 and 8; names that end in Pkl are those of torch_npu.hooks
// and ptdbg_ascend.
//
//   TextBuffer text;
//   GenerationCells cells(format, row, &text);
//   const CellKind kind = cells.Metric8(&kernels::Diff::cosine);
#pragma once

#include <string_view>

#include "engine/compare/table/generation_rules.h"
#include "engine/compare/table/row_cells.h"

namespace msprobe::compare {

class GenerationCells : public RowCells {
 public:
  using RowCells::RowCells;
  using DiffNumber = double Diff::*;
  using CellOfSide = CellKind (RowCells::*)(Side);

  // A cell of a side's dtype or shape: that of 26, or None for an argument that is None.
  CellKind OrNone8(CellOfSide cell, Side side);
  CellKind Name8(Side side);
  CellKind Metric8(DiffNumber metric);
  CellKind Difference8(int which);
  CellKind Relative8(int which);
  CellKind Statistic8(Side side, int which);
  CellKind Checksum8(Side side);
  CellKind Word8() { return Word(GenerationWordText(verdict().word)); }
  CellKind DataName8();

  // A cell of a side: that of 26, or Nan where the side does not have the value.
  CellKind OrNanPkl(CellOfSide cell, Side side) {
    return LeafOf(side) ? (this->*cell)(side) : Word("Nan");
  }
  CellKind MetricPkl(DiffNumber metric);
  CellKind DifferencePkl(int which);
  CellKind StatisticPkl(Side side, int which);
  CellKind WordPkl();

  // Of all these generations.
  CellKind MessageOfGeneration();

 private:
  bool Is(Generation generation) const { return options().generation == generation; }
  bool HasNote(GenerationNote note) const { return verdict().Has(note); }
  bool IsHiddenGradient() const;
  StatisticDifference Subtract(int which) const {
    return SubtractStatistic(target_, golden_, which, options().generation);
  }
  // A finite number as Python prints it.
  CellKind Number(double value) {
    text_.Number(value);
    return CellKind::kNumber;
  }
  CellKind NonFinite(double value);
  CellKind Fixed(double value, int decimals);
  CellKind NumberPkl(double value);
  CellKind PercentagePkl();
  double HalfCosine() const;
  CellKind MetricHooks(DiffNumber metric);
  CellKind MetricPtdbgFirst(DiffNumber metric);
  CellKind MetricPtdbg(DiffNumber metric);
  CellKind MetricOfScalars(DiffNumber metric);
};

}  // namespace msprobe::compare
