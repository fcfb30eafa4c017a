// The sketch of a tensor while its chunks are read in order: what ComputeSketch and ComputeStats
// share.
//
//   SketchScan scan;                    // one for each thread
//   scan.Begin(layout, first);          // of a group (chunks.h)
//   scan.Add(dtype, p, n, SketchOf::kFinite, /*finite=*/false);  // chunk by chunk
//   const SketchNode node = scan.Finish();
#pragma once

#include <array>
#include <complex>
#include <cstdint>

#include "engine/kernels/sketch_node.h"
#include "engine/kernels/stats_node.h"

namespace msprobe::kernels {

struct SketchScan {
  static constexpr size_t kRows = 256;      // that wait; a multiple of kRowLanes
  static constexpr size_t kFloatRows = 16;  // whose lanes wait, at most; a divisor of kRows

  SketchNode node;
  const SketchLayout* layout = nullptr;
  int64_t columns = 1, lane_count = 8;
  int64_t at = 0, row = 0, column = 0;  // of the next value
  bool begun = true;                    // the row began in this group
  // The row so far: its pieces that are summed, and the lanes of the one that is not.
  std::complex<double> sum;
  std::array<double, 16> re, im;
  bool in_float = false;
  alignas(64) std::array<float, 16> float_re, float_im;  // in place of `re` and `im`
  // Whole rows that are not in `lanes` yet, and the run that they belong to.
  alignas(64) std::array<double, 2 * kRows> rows;  // real part, imaginary part, real part, ...
  size_t waiting = 0;
  int64_t first_waiting = 0;  // its row
  // In place of `rows`, of rows in float that are one piece: their sums, and the lanes of up to
  // kFloatRows rows after them. A vector of sums may reach behind the last row.
  alignas(64) std::array<float, kRows + kFloatRows> rows_re, rows_im;
  alignas(64) std::array<float, 16 * kFloatRows> lanes_re, lanes_im;
  size_t lane_rows = 0;
  RowRun run;
  RunLanes lanes;  // of `run`
  bool in_run = false;

  // A group of chunks begins with value number `first`.
  void Begin(const SketchLayout& of, int64_t first) {
    layout = &of;
    columns = of.columns();
    lane_count = LanesOf(columns);
    in_float = of.in_float();
    node = {.layout = &of, .first = first, .end = first, .inside = true};
    at = first;
    row = first / columns;
    column = first - row * columns;
    begun = column == 0;
    sum = 0;
    ClearPiece();
    waiting = lane_rows = 0;
    in_run = false;
  }

  // The next `n` elements, at most kChunkElements. `finite`: none of them is NaN or infinite, which
  // need not be looked at then.
  void Add(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool finite);
  // The same, of all elements, together with their statistics. False: that would not be faster than
  // one after the other, and nothing was done.
  bool AddWithStats(DType dtype, const uint8_t* p, int64_t n, int64_t chunk, StatsNode* stats);
  // The sums of the group, after its last chunk.
  const SketchNode& Finish();

  // Whether a row that lies in one group waits in float.
  bool whole_in_float() const { return in_float && columns <= kPhaseTable; }
  // A piece of the row, which begins with column number `first_column`, has this sum.
  void AddPiece(std::complex<double> piece, int64_t first_column) {
    if (first_column > 0) piece = Turned(piece, PhaseOfPiece(first_column / kPhaseTable));
    sum += piece;
  }
  // The piece in the lanes ends here.
  void EndPiece() {
    const int64_t first = (column - 1) / kPhaseTable * kPhaseTable;
    if (in_float) {
      AddPiece({AddTree(float_re), AddTree(float_im)}, first);
    } else {
      AddPiece({AddTree(re.data(), lane_count), AddTree(im.data(), lane_count)}, first);
    }
    ClearPiece();
  }
  void ClearPiece() {
    if (in_float) {
      float_re.fill(0);
      float_im.fill(0);
    } else {
      re.fill(0);
      im.fill(0);
    }
  }
};

}  // namespace msprobe::kernels
