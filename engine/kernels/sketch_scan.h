// The sketch of a tensor while its chunks are read in order: what ComputeSketch and ComputeStats share.
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
  static constexpr size_t kRows = 64;  // that wait; a multiple of kRowLanes

  SketchNode node;
  const SketchLayout* layout = nullptr;
  int64_t columns = 1, lane_count = 8;
  int64_t at = 0, row = 0, column = 0;  // of the next value
  bool begun = true;                    // the row began in this group
  // The row so far: its pieces that are summed, and the lanes of the one that is not.
  std::complex<double> sum;
  std::array<double, 16> re, im;
  // Whole rows that are not in `lanes` yet, and the run that they belong to.
  alignas(64) std::array<double, 2 * kRows> rows;  // real part, imaginary part, real part, ...
  size_t waiting = 0;
  int64_t first_waiting = 0;  // its row
  RowRun run;
  RunLanes lanes;  // of `run`
  bool in_run = false;

  // A group of chunks begins with value number `first`.
  void Begin(const SketchLayout& of, int64_t first) {
    layout = &of;
    columns = of.columns();
    lane_count = LanesOf(columns);
    node = {.layout = &of, .first = first, .end = first, .inside = true};
    at = first;
    row = first / columns;
    column = first - row * columns;
    begun = column == 0;
    sum = 0;
    re.fill(0);
    im.fill(0);
    waiting = 0;
    in_run = false;
  }

  // The next `n` elements, at most kChunkElements. `finite`: none of them is NaN or infinite, which need
  // not be looked at then.
  void Add(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool finite);
  // The same, of all that are finite, together with their statistics. False: that would not be faster
  // than one after the other, and nothing was done.
  bool AddWithStats(DType dtype, const uint8_t* p, int64_t n, int64_t chunk, StatsNode* stats);
  // The sums of the group, after its last chunk.
  const SketchNode& Finish();

  // A piece of the row, which begins with column number `first_column`, has this sum.
  void AddPiece(std::complex<double> piece, int64_t first_column) {
    if (first_column > 0)
      piece = Turned(piece, PhaseOf(kColumnStep * static_cast<uint64_t>(first_column)));
    sum += piece;
  }
  // The piece in `re` and `im` ends here.
  void EndPiece() {
    AddPiece({AddTree(re.data(), lane_count), AddTree(im.data(), lane_count)},
             (column - 1) / kPhaseTable * kPhaseTable);
    re.fill(0);
    im.fill(0);
  }
};

}  // namespace msprobe::kernels
