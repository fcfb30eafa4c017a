// ComputeSketch in the simplest way: the definition that the vector kernel is tested against, bit
// for bit.
#pragma once

#include <cmath>
#include <complex>
#include <vector>

#include "engine/kernels/rest_stats_scalar.h"
#include "engine/kernels/sketch_node.h"
#include "engine/kernels/stats_scalar.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {

// Values of an element in a sketch: the columns that it takes.
inline int64_t SketchValues(DType dtype) {
  return DTypeKindOf(dtype) == DTypeKind::kComplex ? 2 : ValuesPerElement(dtype);
}

inline bool CountsInSketch(double value, SketchOf of) {
  return of == SketchOf::kRest ? std::abs(value) < kExtreme : std::isfinite(value);
}

inline double ValueInSketch(DType dtype, const uint8_t* element, int64_t part, SketchOf of) {
  double value;
  if (dtype == DType::kFloat4E2M1X2) {
    value = Float4E2M1ToFloat(*element >> (part * 4) & 15);
  } else if (DTypeKindOf(dtype) == DTypeKind::kComplex) {
    const std::complex<double> z = ElementToComplex(dtype, element);
    value = part == 0 ? z.real() : z.imag();
  } else {
    value = ElementToDouble(dtype, element);
  }
  return CountsInSketch(value, of) ? value : 0.0;
}

// The values [first, end) of one group.
inline SketchNode GroupSketchScalar(const SketchLayout& layout, const double* values, int64_t first,
                                    int64_t end) {
  const int64_t columns = layout.columns(), lane_count = LanesOf(columns);
  SketchNode node{.layout = &layout, .first = first, .end = end, .inside = true};
  RowRun run;
  RunLanes lanes;
  int64_t in_run = 0;  // rows
  const auto finish_run = [&] {
    if (in_run > 0) node.whole += lanes.Finish(layout, run);
    lanes = {};
    in_run = 0;
  };
  for (int64_t at = first; at < end;) {
    const int64_t row = at / columns, stop = std::min(end, (row + 1) * columns);
    const bool begins = at == row * columns, ends = stop == (row + 1) * columns;
    std::complex<double> sum;
    while (at < stop) {
      const int64_t column = at - row * columns, block = column / kPhaseTable;
      const int64_t piece_end = std::min(stop, row * columns + (block + 1) * kPhaseTable);
      std::array<float, 16> float_re{}, float_im{};
      for (; layout.in_float() && at < piece_end; ++at) {
        const int64_t j = at - row * columns;
        const auto k = static_cast<size_t>(j % kPhaseTable), lane = k % 16;
        const auto x = static_cast<float>(values[at]);
        float_re[lane] = std::fma(x, ColumnFloatPhases().re[k], float_re[lane]);
        float_im[lane] = std::fma(x, ColumnFloatPhases().im[k], float_im[lane]);
      }
      double re[16] = {}, im[16] = {};
      for (; at < piece_end; ++at) {
        const int64_t j = at - row * columns;
        const auto k = static_cast<size_t>(j % kPhaseTable);
        re[j % lane_count] += values[at] * ColumnPhases().re[k];
        im[j % lane_count] += values[at] * ColumnPhases().im[k];
      }
      std::complex<double> piece{AddTree(re, lane_count), AddTree(im, lane_count)};
      if (layout.in_float()) piece = {AddTree(float_re), AddTree(float_im)};
      if (block > 0) piece = Turned(piece, PhaseOfPiece(block));
      sum += piece;
    }
    node.inside = node.inside && !begins && !ends;
    if (begins && ends) {
      if (in_run == 0 || row == run.end) {
        finish_run();
        run = layout.RunOf(row);
      }
      lanes.Add(layout, row - run.start, in_run % kRowLanes, sum);
      ++in_run;
    } else {
      (ends ? node.head : node.tail) = sum;
    }
  }
  finish_run();
  return node;
}

inline std::optional<Sketch> ComputeSketchScalar(const TensorView& view,
                                                 SketchOf of = SketchOf::kFinite) {
  const int64_t numel = view.numel();
  if (numel == 0) return std::nullopt;
  const size_t size = DTypeSize(view.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(numel) * size);
  CopyContiguous(view, bytes.data());
  const int64_t parts = SketchValues(view.dtype);
  std::vector<double> values;
  for (int64_t i = 0; i < numel; ++i) {
    for (int64_t part = 0; part < parts; ++part) {
      const uint8_t* element = bytes.data() + static_cast<size_t>(i) * size;
      values.push_back(ValueInSketch(view.dtype, element, part, of));
    }
  }
  const SketchLayout layout(view.dtype, view.dims());
  const int64_t groups = (numel + kGroupElements - 1) / kGroupElements;
  return FinishSketch(FoldScalar<SketchNode>(0, groups, [&](int64_t group) {
    return GroupSketchScalar(layout, values.data(), group * kGroupElements * parts,
                             std::min(numel, (group + 1) * kGroupElements) * parts);
  }));
}

}  // namespace msprobe::kernels
