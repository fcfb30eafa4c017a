#include "engine/kernels/sketch.h"

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/sketch_node.h"
#include "engine/kernels/sketch_scalar.h"
#include "engine/kernels/sketch_scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/sketch.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/sketch_rows-inl.h"
#include "engine/kernels/stats_accumulator-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Puts the rows that wait into the lanes of their run.
void AddWaiting(SketchScan* s);

// The rows that wait become part of a run that ends before `row`, or go on into it.
HWY_INLINE void EnterRun(SketchScan* s, int64_t row) {
  if (s->in_run && row < s->run.end) return;
  AddWaiting(s);
  if (s->in_run) s->node.whole += s->lanes.Finish(*s->layout, s->run);
  s->run = s->layout->RunOf(row);
  s->lanes = {};
  s->in_run = true;
}

// The next row is whole.
HWY_INLINE void PushRow(SketchScan* s, std::complex<double> sum) {
  EnterRun(s, s->row);
  if (s->waiting == 0) s->first_waiting = s->row;
  s->rows[2 * s->waiting] = sum.real();
  s->rows[2 * s->waiting + 1] = sum.imag();
  if (++s->waiting == SketchScan::kRows) AddWaiting(s);
}

// The row ends here.
HWY_INLINE void EndRow(SketchScan* s) {
  s->node.inside = false;
  if (s->begun) {
    PushRow(s, s->sum);
  } else {
    s->node.head = s->sum;
  }
  s->begun = true;
  s->sum = 0;
  s->column = 0;
  ++s->row;
}

#if HWY_TARGET == HWY_SCALAR

void AddWaiting(SketchScan* s) {
  for (size_t k = 0; k < s->waiting; ++k) {
    const int64_t in_block = s->first_waiting + static_cast<int64_t>(k) - s->run.start;
    s->lanes.Add(*s->layout, in_block, k % kRowLanes, {s->rows[2 * k], s->rows[2 * k + 1]});
  }
  s->waiting = 0;
}

bool StatsAndValues(DType, const uint8_t*, int64_t, uint64_t, StatsNode*, SketchScan*) {
  return false;
}

void AddValues(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool /*finite*/,
               SketchScan* s) {
  const int64_t parts = SketchValues(dtype), size = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t i = 0; i < n * parts; ++i) {
    const double value = ValueInSketch(dtype, p + i / parts * size, i % parts, of);
    const auto k = static_cast<size_t>(s->column % kPhaseTable);
    const auto lane = static_cast<size_t>(s->column % s->lane_count);
    s->node.inside = s->node.inside && s->column > 0;
    s->re[lane] += value * ColumnPhases().re[k];
    s->im[lane] += value * ColumnPhases().im[k];
    ++s->column;
    if (s->column % kPhaseTable == 0 || s->column == s->columns) s->EndPiece();
    if (s->column == s->columns) EndRow(s);
  }
}

#else

void AddWaiting(SketchScan* s) {
  const DoubleTag d;
  const size_t count = s->waiting;
  if (count == 0) return;
  s->waiting = 0;
  for (size_t k = count; k % kRowLanes != 0; ++k) s->rows[2 * k] = s->rows[2 * k + 1] = 0;
  const auto in_block = static_cast<size_t>(s->first_waiting - s->run.start);
  RunLanes& lanes = s->lanes;
  const bool grid = !s->layout->grid_is_wave();
  const PhaseTable& row_phases = RowPhases();
  const PhaseTable& grid_phases = s->layout->grid_phases();
  for (size_t v = 0; v < kVecsOf8; ++v) {  // lanes from v * kDoublesPerVec on
    const size_t lane = v * kDoublesPerVec;
    const auto load = [&](const std::array<double, kRowLanes>& from) {
      return hn::LoadU(d, from.data() + lane);
    };
    auto rows_re = load(lanes.rows_re), rows_im = load(lanes.rows_im);
    auto squares = load(lanes.squares);
    auto wave_re = load(lanes.wave_re), wave_im = load(lanes.wave_im);
    auto grid_re = load(lanes.grid_re), grid_im = load(lanes.grid_im);
    for (size_t k = lane; k < count; k += kRowLanes) {
      DoubleVec re, im;
      hn::LoadInterleaved2(d, s->rows.data() + 2 * k, re, im);
      rows_re = hn::Add(rows_re, re);
      rows_im = hn::Add(rows_im, im);
      squares = hn::Add(hn::Add(squares, hn::Mul(re, re)), hn::Mul(im, im));
      const auto turn = [&](const PhaseTable& phases, DoubleVec& to_re, DoubleVec& to_im) {
        const auto c = hn::LoadU(d, phases.re.data() + in_block + k);
        const auto i = hn::LoadU(d, phases.im.data() + in_block + k);
        to_re = hn::Sub(hn::Add(to_re, hn::Mul(re, c)), hn::Mul(im, i));
        to_im = hn::Add(hn::Add(to_im, hn::Mul(re, i)), hn::Mul(im, c));
      };
      turn(row_phases, wave_re, wave_im);
      if (grid) turn(grid_phases, grid_re, grid_im);
    }
    const auto store = [&](DoubleVec value, std::array<double, kRowLanes>& to) {
      hn::StoreU(value, d, to.data() + lane);
    };
    store(rows_re, lanes.rows_re), store(rows_im, lanes.rows_im);
    store(squares, lanes.squares);
    store(wave_re, lanes.wave_re), store(wave_im, lanes.wave_im);
    store(grid_re, lanes.grid_re), store(grid_im, lanes.grid_im);
  }
}

// The same for `n` rows of one value each, which are the next ones of the run: a multiple of kRowLanes.
template <class Source>
HWY_INLINE void AddElements(const uint8_t* p, int64_t n, SketchScan* s) {
  const DoubleTag d;
  const auto in_block = static_cast<size_t>(s->row - s->run.start);
  RunLanes& lanes = s->lanes;
  const bool grid = !s->layout->grid_is_wave();
  const PhaseTable& row_phases = RowPhases();
  const PhaseTable& grid_phases = s->layout->grid_phases();
  for (size_t v = 0; v < kVecsOf8; ++v) {
    const size_t lane = v * kDoublesPerVec;
    const auto load = [&](const std::array<double, kRowLanes>& from) {
      return hn::LoadU(d, from.data() + lane);
    };
    auto rows = load(lanes.rows_re), squares = load(lanes.squares);
    auto wave_re = load(lanes.wave_re), wave_im = load(lanes.wave_im);
    auto grid_re = load(lanes.grid_re), grid_im = load(lanes.grid_im);
    for (size_t k = lane; k < static_cast<size_t>(n); k += kRowLanes) {
      const auto x = Source::Load(p + static_cast<int64_t>(k) * Source::kBytes);
      rows = hn::Add(rows, x);
      squares = AddProduct<Source::kExact>(x, x, squares);
      const auto turn = [&](const PhaseTable& phases, DoubleVec& to_re, DoubleVec& to_im) {
        to_re = AddProduct<Source::kExact>(x, hn::LoadU(d, phases.re.data() + in_block + k), to_re);
        to_im = AddProduct<Source::kExact>(x, hn::LoadU(d, phases.im.data() + in_block + k), to_im);
      };
      turn(row_phases, wave_re, wave_im);
      if (grid) turn(grid_phases, grid_re, grid_im);
    }
    const auto store = [&](DoubleVec value, std::array<double, kRowLanes>& to) {
      hn::StoreU(value, d, to.data() + lane);
    };
    store(rows, lanes.rows_re), store(squares, lanes.squares);
    store(wave_re, lanes.wave_re), store(wave_im, lanes.wave_im);
    store(grid_re, lanes.grid_re), store(grid_im, lanes.grid_im);
  }
}

// Values of one row within one piece.
template <class Source, size_t kLaneGroups>
HWY_INLINE void AddToPiece(const uint8_t* p, int64_t n, SketchScan* s) {
  const DoubleTag d;
  constexpr int64_t kStep = 8 * kLaneGroups;
  const PhaseTable& phases = ColumnPhases();
  auto j = static_cast<size_t>(s->column % kPhaseTable);
  const auto one_by_one = [&](int64_t count) {
    for (; count > 0; --count, ++j, p += Source::kBytes, --n) {
      const double x = hn::GetLane(Source::LoadFirst(p, 1));
      s->re[j % kStep] += x * phases.re[j];
      s->im[j % kStep] += x * phases.im[j];
    }
  };
  s->column += n;
  one_by_one(HWY_MIN(n, (kStep - static_cast<int64_t>(j % kStep)) % kStep));
  if (n >= kStep) {
    Piece<kLaneGroups, Source::kExact> piece;
    for (size_t g = 0; g < kLaneGroups; ++g) {
      for (size_t k = 0; k < kVecsOf8; ++k) {
        piece.re[g][k] = hn::LoadU(d, s->re.data() + 8 * g + k * kDoublesPerVec);
        piece.im[g][k] = hn::LoadU(d, s->im.data() + 8 * g + k * kDoublesPerVec);
      }
    }
    for (; n >= kStep; n -= kStep, j += kStep, p += kStep * Source::kBytes) {
      for (size_t g = 0; g < kLaneGroups; ++g) {
        for (size_t k = 0; k < kVecsOf8; ++k) {
          const size_t lane = 8 * g + k * kDoublesPerVec;
          const auto x = Source::Load(p + static_cast<int64_t>(lane) * Source::kBytes);
          piece.re[g][k] = AddProduct<Source::kExact>(x, hn::LoadU(d, phases.re.data() + j + lane),
                                                      piece.re[g][k]);
          piece.im[g][k] = AddProduct<Source::kExact>(x, hn::LoadU(d, phases.im.data() + j + lane),
                                                      piece.im[g][k]);
        }
      }
    }
    for (size_t g = 0; g < kLaneGroups; ++g) {
      for (size_t k = 0; k < kVecsOf8; ++k) {
        hn::StoreU(piece.re[g][k], d, s->re.data() + 8 * g + k * kDoublesPerVec);
        hn::StoreU(piece.im[g][k], d, s->im.data() + 8 * g + k * kDoublesPerVec);
      }
    }
  }
  one_by_one(n);
}

template <class Source>
HWY_NOINLINE void AddSource(const uint8_t* p, int64_t n, SketchScan* s) {
  while (n > 0) {
    // Whole rows that are one piece, as many as there is room for.
    if (s->column == 0 && n >= s->columns && s->columns <= kPhaseTable) {
      s->node.inside = false;
      EnterRun(s, s->row);
      if (s->waiting == 0) s->first_waiting = s->row;
      if (s->columns == 1 && s->waiting == 0) {
        const int64_t count = std::min(n, s->run.end - s->row) / kRowLanes * kRowLanes;
        if (count > 0) {
          AddElements<Source>(p, count, s);
          s->row += count;
          n -= count;
          p += count * Source::kBytes;
          continue;
        }
      }
      const auto room = static_cast<int64_t>(SketchScan::kRows - s->waiting);
      const int64_t count = std::min({n / s->columns, s->run.end - s->row, room});
      SumAllRows<Source>(p, s->columns, count, s->rows.data() + 2 * s->waiting);
      s->waiting += static_cast<size_t>(count);
      if (s->waiting == SketchScan::kRows) AddWaiting(s);
      s->row += count;
      n -= count * s->columns;
      p += count * s->columns * Source::kBytes;
      continue;
    }
    s->node.inside = s->node.inside && s->column > 0;
    const int64_t piece_end = std::min(s->columns, (s->column / kPhaseTable + 1) * kPhaseTable);
    const int64_t take = std::min(n, piece_end - s->column);
    s->lane_count == 8 ? AddToPiece<Source, 1>(p, take, s) : AddToPiece<Source, 2>(p, take, s);
    p += take * Source::kBytes;
    n -= take;
    if (s->column == piece_end) s->EndPiece();
    if (s->column == s->columns) EndRow(s);
  }
}

// Of any dtype, and where not all elements count.
HWY_NOINLINE void AddDecoded(DType dtype, const uint8_t* p, int64_t n, SketchOf of, SketchScan* s) {
  alignas(64) double values[2 * kChunkElements];
  if (DTypeKindOf(dtype) == DTypeKind::kComplex) {
    alignas(64) double re[kChunkElements], im[kChunkElements];
    DecodeComplex(dtype, p, n, re, im);
    for (int64_t i = 0; i < n; ++i) {
      values[2 * i] = re[i];
      values[2 * i + 1] = im[i];
    }
  } else {
    DecodeDoubles(dtype, p, n, values);
  }
  n *= SketchValues(dtype);
  const double limit = of == SketchOf::kRest ? kExtreme : std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < n; ++i) values[i] = std::fabs(values[i]) < limit ? values[i] : 0.0;
  AddSource<DecodedValues>(reinterpret_cast<const uint8_t*>(values), n, s);
}

void AddValues(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool finite, SketchScan* s) {
  const bool is_short = s->columns > 1 && s->columns < 8;
  if (finite && of == SketchOf::kFinite && !is_short) {
    switch (dtype) {
      case DType::kFloat32:
        return AddSource<Float32Values>(p, n, s);
      case DType::kBFloat16:
        return AddSource<BFloat16Values>(p, n, s);
      case DType::kFloat64:
        return AddSource<DoubleValues>(p, n, s);
      case DType::kFloat16:
        if constexpr (kReadsFloat16) return AddSource<Float16Values>(p, n, s);
        break;
      default:
        break;
    }
  }
  AddDecoded(dtype, p, n, of, s);
}

// ChunkStats (stats.cc) and AddValues in one loop, which converts each element to double once. The
// rows are whole steps, so that a step belongs to one row.
template <class Loader, size_t kLaneGroups>
HWY_NOINLINE void ScanBoth(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk,
                           StatsNode* node, SketchScan* s) {
  const DoubleTag d;
  constexpr int64_t kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr int64_t kStep = std::max<int64_t>(kLanes, kStripeBytes / kBytes);
  const uint8_t* const begin = p;
  const int64_t elements = n;
  FloatAccumulator accumulator;
  Hasher<true> hasher;
  const PhaseTable& phases = ColumnPhases();
  Piece<kLaneGroups, true> piece;
  for (size_t g = 0; g < kLaneGroups; ++g) {
    piece.re[g][0] = hn::LoadU(d, s->re.data() + 8 * g);
    piece.im[g][0] = hn::LoadU(d, s->im.data() + 8 * g);
  }
  while (n > 0) {
    const int64_t piece_begin = s->column / kPhaseTable * kPhaseTable;
    const int64_t piece_end = std::min(s->columns, piece_begin + kPhaseTable);
    const int64_t take = std::min(n, piece_end - s->column);
    const double* re = phases.re.data() + (s->column - piece_begin);
    const double* im = phases.im.data() + (s->column - piece_begin);
    s->node.inside = s->node.inside && s->column > 0;
    for (const uint8_t* end = p + take * kBytes; p < end; p += kStep * kBytes) {
      for (int64_t b = 0; b < kStep * kBytes; b += kStripeBytes) PrefetchAhead(p + b);
      for (int64_t b = 0; b < kStep * kBytes; b += kStripeBytes) hasher.Stripe(p + b);
      for (int64_t i = 0; i < kStep; i += kLanes, re += kLanes, im += kLanes) {
        accumulator.template Add<Loader, false>(p + i * kBytes, kLanes, [&](size_t k, DoubleVec x) {
          const size_t g = kLaneGroups == 1 ? 0 : k;
          piece.re[g][0] = hn::MulAdd(x, hn::LoadU(d, re + 8 * k), piece.re[g][0]);
          piece.im[g][0] = hn::MulAdd(x, hn::LoadU(d, im + 8 * k), piece.im[g][0]);
        });
      }
    }
    n -= take;
    s->column += take;
    if (s->column < piece_end) break;
    const Pair pair = piece.Sum();
    piece.Clear();
    const bool is_row = s->begun && s->columns <= kPhaseTable;
    if (is_row && s->in_run && s->waiting > 0 && s->row < s->run.end) {  // PushRow, in short
      hn::StoreU(pair, hn::FixedTag<double, 2>(), s->rows.data() + 2 * s->waiting);
      s->column = 0;
      ++s->row;
      if (++s->waiting == SketchScan::kRows) AddWaiting(s);
      continue;
    }
    double sum[2];
    hn::StoreU(pair, hn::FixedTag<double, 2>(), sum);
    s->AddPiece({sum[0], sum[1]}, piece_begin);
    if (s->column == s->columns) EndRow(s);
  }
  for (size_t g = 0; g < kLaneGroups; ++g) {
    hn::StoreU(piece.re[g][0], d, s->re.data() + 8 * g);
    hn::StoreU(piece.im[g][0], d, s->im.data() + 8 * g);
  }
  accumulator.Finish(node);
  node->hash = hasher.Finish(chunk, static_cast<uint64_t>(elements * kBytes));
  if (!MayHoldSpecials(*node)) return;
  RecountFloats(dtype, begin, elements, node);
  s->node.spoiled = true;
}

// False: nothing was done, because the dtype, the width of the rows or the target does not suit.
bool StatsAndValues(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk, StatsNode* node,
                    SketchScan* s) {
  if constexpr (kDoublesPerVec != 8) return false;
  const int64_t step = dtype == DType::kFloat32 ? 16 : 32;
  if (s->columns % step != 0) return false;
  const bool wide = s->lane_count == 16;
  switch (dtype) {
    case DType::kFloat32:
      wide ? ScanBoth<LoadFloat32, 2>(dtype, p, n, chunk, node, s)
           : ScanBoth<LoadFloat32, 1>(dtype, p, n, chunk, node, s);
      break;
    case DType::kBFloat16:
      wide ? ScanBoth<LoadBFloat16, 2>(dtype, p, n, chunk, node, s)
           : ScanBoth<LoadBFloat16, 1>(dtype, p, n, chunk, node, s);
      break;
    case DType::kFloat16:
      wide ? ScanBoth<LoadFloat16, 2>(dtype, p, n, chunk, node, s)
           : ScanBoth<LoadFloat16, 1>(dtype, p, n, chunk, node, s);
      break;
    default:
      return false;
  }
  return true;
}

#endif  // HWY_TARGET == HWY_SCALAR

void FinishRows(SketchScan* s) {
  AddWaiting(s);
  if (s->in_run) s->node.whole += s->lanes.Finish(*s->layout, s->run);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(AddValues);
HWY_EXPORT(FinishRows);
HWY_EXPORT(StatsAndValues);

bool SketchScan::AddWithStats(DType dtype, const uint8_t* p, int64_t n, int64_t chunk,
                              StatsNode* stats) {
  return HWY_DYNAMIC_DISPATCH(StatsAndValues)(dtype, p, n, static_cast<uint64_t>(chunk), stats,
                                              this);
}

void SketchScan::Add(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool finite) {
  HWY_DYNAMIC_DISPATCH(AddValues)(dtype, p, n, of, finite, this);
}

const SketchNode& SketchScan::Finish() {
  HWY_DYNAMIC_DISPATCH(FinishRows)(this);
  if (column > 0) {  // the group ends inside a row
    if (column % kPhaseTable != 0) EndPiece();
    node.tail = sum;
  }
  node.end = row * columns + column;
  return node;
}

std::optional<Sketch> ComputeSketch(const TensorView& view, ThreadPool* pool, SketchOf of) {
  const int64_t numel = view.numel();
  if (numel == 0) return std::nullopt;
  const FloatEnvironment environment;
  const SketchLayout layout(view.dtype, view.dims());
  const int64_t values = SketchValues(view.dtype);
  const ChunkReader reader(view);
  struct Scratch {
    ChunkReader::Window window;
    SketchScan scan;
  };
  const SketchNode node = FoldChunks<SketchNode, Scratch>(
      numel, pool, [&](int64_t first, int64_t n, int64_t /*chunk*/, Scratch& scratch) {
        const uint8_t* p = reader.Read(first, n, &scratch.window);
        SketchScan& scan = scratch.scan;
        if (first % kGroupElements == 0) scan.Begin(layout, first * values);
        scan.Add(view.dtype, p, n, of, /*finite=*/false);
        const int64_t end = first + n;
        return end % kGroupElements == 0 || end == numel ? scan.Finish() : SketchNode();
      });
  return FinishSketch(node);
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
