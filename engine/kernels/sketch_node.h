// The intermediate result of ComputeSketch for a part of a tensor, and how two neighbouring parts
// are combined.
//
// The order of additions: values are cut into groups of kGroupElements elements. Within a group a
// row is cut where a multiple of kPhaseTable columns begins; such a piece is summed in
// LanesOf(columns) lanes, column j in lane j % lanes, which are added in a tree (AddTree). Rows of
// several columns of float32, float16 and bfloat16 have sixteen lanes, and each column is one fused
// multiply-add in float: as many digits as the elements have, at a fourth of the cost. The pieces
// of a row are turned to their place (PhaseOf) and added in order. Rows that end in the group are
// cut into runs (RunOf), and a run is summed in eight lanes, its k-th row in lane k % 8. A row that
// lies in several groups is added when they are combined.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/kernels/chunks.h"
#include "engine/kernels/dtype_traits.h"
#include "engine/kernels/phase.h"
#include "engine/kernels/sketch.h"

namespace msprobe::kernels {

// Lanes of a row. A long row needs more, so that additions need not wait for each other.
constexpr int64_t LanesOf(int64_t columns) { return columns >= 128 ? 16 : 8; }
inline constexpr int64_t kRowLanes = 8;

// ((0 + 1) + (4 + 5)) + ((2 + 3) + (6 + 7)) of eight lanes, which costs vectors the fewest
// shuffles; of sixteen lanes, the halves are added first.
inline double AddTree(const double* lanes, int64_t n) {
  std::array<double, 8> sum;
  for (size_t k = 0; k < 8; ++k) sum[k] = n == 16 ? lanes[k] + lanes[k + 8] : lanes[k];
  const auto pair = [&](size_t k) { return sum[2 * k] + sum[2 * k + 1]; };
  return (pair(0) + pair(2)) + (pair(1) + pair(3));
}

// The same of sixteen lanes in float: lane k and k + 8, then 4, 2, 1.
inline float AddTree(std::array<float, 16> lanes) {
  for (size_t n = 8; n > 0; n /= 2) {
    for (size_t k = 0; k < n; ++k) lanes[k] += lanes[k + n];
  }
  return lanes[0];
}

// z * phase in four products and two sums. Not inline: for targets with FMA, g++ 12 makes one
// vfmaddsub of it in spite of -ffp-contract=off.
std::complex<double> Turned(std::complex<double> z, std::complex<double> phase);

// A part of the rows whose phases are those of a table, turned by one angle for each of wave and
// grid.
struct RowRun {
  int64_t start = 0, end = 0;  // rows
  std::complex<double> wave, grid;
};

// Rows and columns of a tensor, and the phases of its rows in `grid`.
//
// The dimensions before the last one, from the right: as many as have together at most kPhaseTable
// rows, and a part of the next one, are a block; block after block has the same phases but for one
// angle.
class SketchLayout {
 public:
  // No extent is 0; their product fits int64_t.
  SketchLayout(DType dtype, std::span<const int64_t> extents);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Whether columns are summed in float.
  bool in_float() const { return in_float_; }
  bool has_grid() const { return has_grid_; }
  // Phases of `grid` in a block; of two dimensions, and where a block lies in one dimension, they
  // are RowPhases().
  const PhaseTable& grid_phases() const { return grid_is_wave() ? RowPhases() : *grid_phases_; }
  bool grid_is_wave() const { return grid_phases_ == nullptr; }

  RowRun RunOf(int64_t row) const {
    const int64_t in_span = row % span_, start = row - in_span % block_;
    const int64_t end = std::min({start + block_, row - in_span + span_, rows_});
    RowRun run{.start = start, .end = end, .wave = {1, 0}, .grid = {1, 0}};
    if (start == 0) return run;
    run.wave = PhaseOf(kRowStep * static_cast<uint64_t>(start));
    run.grid = has_grid_ ? PhaseOf(GridAngle(start)) : run.wave;
    return run;
  }
  // The angle of a row's first column in `grid`.
  uint64_t GridAngle(int64_t row) const {
    uint64_t angle = 0;
    for (int d = 0; d < dimensions_; ++d) {
      angle += kPhaseSteps[static_cast<size_t>(d) + 1] * static_cast<uint64_t>(row % extents_[d]);
      row /= extents_[d];
    }
    return angle;
  }

 private:
  int64_t rows_, columns_;
  bool in_float_, has_grid_;
  int dimensions_ = 0;                              // before the last one
  std::array<int64_t, kMostPhases - 1> extents_{};  // theirs, from the right
  int64_t block_, span_;                            // rows
  std::shared_ptr<const PhaseTable> grid_phases_;   // null: RowPhases()
};

struct SketchSums {
  std::complex<double> rows, wave, grid;
  double squares = 0;
  SketchSums& operator+=(const SketchSums& b) {
    rows += b.rows;
    wave += b.wave;
    grid += b.grid;
    squares += b.squares;
    return *this;
  }
};

// The sums of one run of rows, fed with rows in order.
struct RunLanes {
  std::array<double, kRowLanes> rows_re{}, rows_im{}, squares{}, wave_re{}, wave_im{}, grid_re{},
      grid_im{};

  void Add(const SketchLayout& layout, int64_t in_block, int64_t lane, std::complex<double> row) {
    const auto k = static_cast<size_t>(in_block), l = static_cast<size_t>(lane);
    const double re = row.real(), im = row.imag();
    rows_re[l] += re;
    rows_im[l] += im;
    squares[l] += re * re;
    squares[l] += im * im;
    const auto turn = [&](const PhaseTable& phases, double& to_re, double& to_im) {
      to_re += re * phases.re[k];
      to_re -= im * phases.im[k];
      to_im += re * phases.im[k];
      to_im += im * phases.re[k];
    };
    turn(RowPhases(), wave_re[l], wave_im[l]);
    if (!layout.grid_is_wave()) turn(layout.grid_phases(), grid_re[l], grid_im[l]);
  }

  // The sums of the whole run.
  SketchSums Finish(const SketchLayout& layout, const RowRun& run) const {
    const auto sum = [](const std::array<double, kRowLanes>& lanes) {
      return AddTree(lanes.data(), kRowLanes);
    };
    SketchSums sums;
    sums.rows = {sum(rows_re), sum(rows_im)};
    sums.squares = sum(squares);
    const std::complex<double> wave{sum(wave_re), sum(wave_im)};
    sums.wave = run.start == 0 ? wave : Turned(wave, run.wave);
    if (layout.has_grid()) {
      const std::complex<double> grid =
          layout.grid_is_wave() ? wave : std::complex<double>{sum(grid_re), sum(grid_im)};
      sums.grid = run.start == 0 ? grid : Turned(grid, run.grid);
    }
    return sums;
  }
};

struct SketchNode {
  const SketchLayout* layout = nullptr;  // null: no values yet
  int64_t first = 0, end = 0;            // values
  // Of the rows that begin and end in the part.
  SketchSums whole;
  // The sums of what lies before the first row that begins in the part and after the last row that
  // ends there. `inside`: no row begins or ends between them, and all is in `tail`.
  std::complex<double> head, tail;
  bool inside = false;
  bool given_up = false;  // the sums are not complete

  static SketchNode Combine(const SketchNode& a, const SketchNode& b) {
    if (a.layout == nullptr) return b;
    if (b.layout == nullptr) return a;
    SketchNode r{.layout = a.layout, .first = a.first, .end = b.end, .whole = a.whole};
    r.whole += b.whole;
    r.head = a.head;
    r.tail = b.tail;
    r.inside = a.inside && b.inside;
    r.given_up = a.given_up || b.given_up;
    const std::complex<double> joined = a.tail + (b.inside ? b.tail : b.head);
    const SketchLayout& layout = *a.layout;
    if (b.inside) {
      r.tail = joined;
    } else if (a.inside) {
      r.head = joined;
    } else if (b.first % layout.columns() != 0) {
      const int64_t row = b.first / layout.columns();
      const RowRun run = layout.RunOf(row);
      RunLanes lanes;
      lanes.Add(layout, row - run.start, 0, joined);
      r.whole += lanes.Finish(layout, run);
    }
    return r;
  }
};

std::optional<Sketch> FinishSketch(const SketchNode& node);

}  // namespace msprobe::kernels
