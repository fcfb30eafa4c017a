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
#include "engine/kernels/sketch_floats-inl.h"
#include "engine/kernels/sketch_rows-inl.h"
#include "engine/kernels/sketch_run-inl.h"
#include "engine/kernels/sketch_short_rows-inl.h"
#include "engine/kernels/stats_accumulator-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

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
    if (s->in_float) {
      const auto x = static_cast<float>(value);
      s->float_re[k % 16] = std::fma(x, ColumnFloatPhases().re[k], s->float_re[k % 16]);
      s->float_im[k % 16] = std::fma(x, ColumnFloatPhases().im[k], s->float_im[k % 16]);
    } else {
      s->re[lane] += value * ColumnPhases().re[k];
      s->im[lane] += value * ColumnPhases().im[k];
    }
    ++s->column;
    if (s->column % kPhaseTable == 0 || s->column == s->columns) s->EndPiece();
    if (s->column == s->columns) EndRow(s);
  }
}

#else

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
      SumAllRows<Source>(p, n, s->columns, count, s->rows.data() + 2 * s->waiting);
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

// `count` whole rows, as many as there is room for, of the `n` elements at `p`.
template <class Loader>
HWY_INLINE void AddFloatRows(const uint8_t* p, int64_t n, int64_t count, SketchScan* s) {
  constexpr size_t kTogether = 4 / kFloatVecs;  // as many as registers allow
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  const int64_t columns = s->columns;
  const LastPhases<float> last(ColumnFloatPhases(), columns, kLanes);
  const auto reads_on = [&](int64_t rows) {
    return (rows - 1) * columns + last.columns_read() <= n;
  };
  while (count > 0) {
    int64_t rows = 1;
    if (s->lane_rows == 0 && count >= kBatchRows && reads_on(kBatchRows)) {
      int64_t batches = count / kBatchRows;
      if (!reads_on(batches * kBatchRows)) --batches;
      rows = batches * kBatchRows;
      SumBatches<Loader>(p, columns, last, batches, s->rows_re.data() + s->waiting,
                         s->rows_im.data() + s->waiting);
      s->waiting += static_cast<size_t>(rows);
      if (s->waiting == SketchScan::kRows) AddWaiting(s);
    } else {
      float* re = s->lanes_re.data() + kLanes * s->lane_rows;
      float* im = s->lanes_im.data() + kLanes * s->lane_rows;
      const auto together = static_cast<int64_t>(kTogether);
      if (count >= together && s->lane_rows + kTogether <= kBatchRows && reads_on(together)) {
        rows = together;
        SumFloatRows<Loader, kTogether, true>(p, columns, last, re, im);
      } else if (reads_on(1)) {
        SumFloatRows<Loader, 1, true>(p, columns, last, re, im);
      } else {
        SumFloatRows<Loader, 1, false>(p, columns, last, re, im);
      }
      PushLanes(s, static_cast<size_t>(rows));
    }
    count -= rows;
    p += rows * columns * kBytes;
    n -= rows * columns;
  }
}

// Rows of several columns, in float; the elements are finite.
template <class Loader>
HWY_NOINLINE void AddFloats(const uint8_t* p, int64_t n, SketchScan* s) {
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  while (n > 0) {
    if (s->column == 0 && n >= s->columns && s->whole_in_float()) {
      s->node.inside = false;
      EnterRun(s, s->row);
      const auto room = static_cast<int64_t>(SketchScan::kRows - s->waiting - s->lane_rows);
      const int64_t count = std::min({n / s->columns, s->run.end - s->row, room});
      if (s->waiting + s->lane_rows == 0) s->first_waiting = s->row;
      AddFloatRows<Loader>(p, n, count, s);
      s->row += count;
      n -= count * s->columns;
      p += count * s->columns * kBytes;
      continue;
    }
    s->node.inside = s->node.inside && s->column > 0;
    const int64_t piece = s->column / kPhaseTable * kPhaseTable;
    const int64_t piece_end = std::min(s->columns, piece + kPhaseTable);
    const int64_t take = std::min(n, piece_end - s->column);
    AddToFloatPiece<Loader>(p, take, s->column - piece, s->float_re.data(), s->float_im.data());
    s->column += take;
    p += take * kBytes;
    n -= take;
    if (s->column < piece_end) return;
    if (s->begun && s->whole_in_float()) {
      s->node.inside = false;
      EnterRun(s, s->row);
      if (s->waiting + s->lane_rows == 0) s->first_waiting = s->row;
      if (s->columns <= kShortRow) {
        s->rows_re[s->waiting] = AddTree(s->float_re);
        s->rows_im[s->waiting] = AddTree(s->float_im);
        if (++s->waiting == SketchScan::kRows) AddWaiting(s);
      } else {
        std::copy_n(s->float_re.data(), kLanes, s->lanes_re.data() + kLanes * s->lane_rows);
        std::copy_n(s->float_im.data(), kLanes, s->lanes_im.data() + kLanes * s->lane_rows);
        PushLanes(s, 1);
      }
      s->ClearPiece();
      s->column = 0;
      ++s->row;
      continue;
    }
    s->EndPiece();
    if (s->column == s->columns) EndRow(s);
  }
}

// Rows of at most kShortRow columns.
HWY_NOINLINE void AddShortFloats(const float* p, int64_t n, SketchScan* s) {
  while (n > 0) {
    if (s->column > 0 || n < s->columns) {
      const int64_t take = std::min(n, s->columns - s->column);
      AddFloats<LoadFloat32>(reinterpret_cast<const uint8_t*>(p), take, s);
      p += take;
      n -= take;
      continue;
    }
    s->node.inside = false;
    EnterRun(s, s->row);
    if (s->waiting == 0) s->first_waiting = s->row;
    const auto room = static_cast<int64_t>(SketchScan::kRows - s->waiting);
    const int64_t count = std::min({n / s->columns, s->run.end - s->row, room});
    SumShortRows(p, n, s->columns, count, s->rows_re.data() + s->waiting,
                 s->rows_im.data() + s->waiting);
    s->waiting += static_cast<size_t>(count);
    if (s->waiting == SketchScan::kRows) AddWaiting(s);
    s->row += count;
    n -= count * s->columns;
    p += count * s->columns;
  }
}

// `limit`: elements of this magnitude or more, and NaN, count as 0; null: there are none.
HWY_INLINE void AddFloatsOf(DType dtype, const uint8_t* p, int64_t n, const double* limit,
                            SketchScan* s) {
  const bool is_short = s->columns <= kShortRow;
  if (limit != nullptr || (is_short && dtype != DType::kFloat32)) {
    alignas(64) float values[kChunkElements];
    DecodeFloats(dtype, p, n, values);
    for (int64_t i = 0; limit != nullptr && i < n; ++i)
      values[i] = std::fabs(values[i]) < *limit ? values[i] : 0.0f;
    return is_short ? AddShortFloats(values, n, s)
                    : AddFloats<LoadFloat32>(reinterpret_cast<const uint8_t*>(values), n, s);
  }
  if (is_short) return AddShortFloats(reinterpret_cast<const float*>(p), n, s);
  switch (dtype) {
    case DType::kFloat32:
      return AddFloats<LoadFloat32>(p, n, s);
    case DType::kBFloat16:
      return AddFloats<LoadBFloat16>(p, n, s);
    default:
      return AddFloats<LoadFloat16>(p, n, s);
  }
}

double LimitOf(SketchOf of) {
  return of == SketchOf::kRest ? kExtreme : std::numeric_limits<double>::infinity();
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
  const double limit = LimitOf(of);
  for (int64_t i = 0; i < n; ++i) values[i] = std::fabs(values[i]) < limit ? values[i] : 0.0;
  AddSource<DecodedValues>(reinterpret_cast<const uint8_t*>(values), n, s);
}

void AddValues(DType dtype, const uint8_t* p, int64_t n, SketchOf of, bool finite, SketchScan* s) {
  const bool all = finite && of == SketchOf::kFinite;
  if (s->in_float) {
    const double limit = LimitOf(of);
    return AddFloatsOf(dtype, p, n, all ? nullptr : &limit, s);
  }
  const bool is_short = s->columns > 1 && s->columns < 8;
  if (all && !is_short) {
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

// ChunkStats (stats.cc) and AddValues in one loop, which reads each element once. The rows are
// whole steps, so that a step belongs to one row.
template <class Loader>
HWY_NOINLINE void ScanBoth(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk,
                           StatsNode* node, SketchScan* s) {
  const FloatTag d;
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr int64_t kStep = StatsStep<Loader>();
  const uint8_t* const begin = p;
  const int64_t elements = n;
  FloatAccumulator accumulator;
  Hasher<true> hasher;
  const FloatPhases& phases = ColumnFloatPhases();
  FloatLanes lanes;
  lanes.Load(s->float_re.data(), s->float_im.data());
  while (n > 0) {
    const int64_t piece = s->column / kPhaseTable * kPhaseTable;
    const int64_t piece_end = std::min(s->columns, piece + kPhaseTable);
    const int64_t take = std::min(n, piece_end - s->column);
    const float* re = phases.re.data() + (s->column - piece);
    const float* im = phases.im.data() + (s->column - piece);
    s->node.inside = s->node.inside && s->column > 0;
    for (const uint8_t* end = p + take * kBytes; p < end; p += kStep * kBytes) {
      for (int64_t b = 0; b < kStep * kBytes; b += kStripeBytes) PrefetchAhead(p + b);
      for (int64_t b = 0; b < kStep * kBytes; b += kStripeBytes) hasher.Stripe(p + b);
      for (int64_t i = 0; i < kStep; i += kLanes, re += kLanes, im += kLanes) {
        accumulator.template Add<Loader, false>(p + i * kBytes, kLanes, [&](size_t k, FloatVec x) {
          const size_t at = k * kFloatsPerVec;
          lanes.re[k] = FusedMulAdd(x, hn::LoadU(d, re + at), lanes.re[k]);
          lanes.im[k] = FusedMulAdd(x, hn::LoadU(d, im + at), lanes.im[k]);
        });
      }
    }
    n -= take;
    s->column += take;
    if (s->column < piece_end) break;
    if (s->begun && s->whole_in_float()) {
      if (!s->in_run || s->row >= s->run.end) EnterRun(s, s->row);
      if (s->waiting + s->lane_rows == 0) s->first_waiting = s->row;
      lanes.Store(s->lanes_re.data() + kLanes * s->lane_rows,
                  s->lanes_im.data() + kLanes * s->lane_rows);
      s->node.inside = false;
      s->column = 0;
      ++s->row;
      PushLanes(s, 1);
    } else {
      lanes.Store(s->float_re.data(), s->float_im.data());
      s->EndPiece();
      if (s->column == s->columns) EndRow(s);
    }
    lanes.Clear();
  }
  lanes.Store(s->float_re.data(), s->float_im.data());
  accumulator.Finish(node);
  node->hash = hasher.Finish(chunk, static_cast<uint64_t>(elements * kBytes));
  if (MayHoldSpecials(*node)) RecountFloats(dtype, begin, elements, node);
}

// False: nothing was done, because the dtype, the width of the rows or the target does not suit.
bool StatsAndValues(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk, StatsNode* node,
                    SketchScan* s) {
  if constexpr (kFloatVecs > 1) return false;  // too few registers
  // Of shorter rows the end of each costs more than a second pass.
  constexpr int64_t kShortest = 128;
  const auto suits = [&](int64_t step) {
    return s->in_float && s->columns >= kShortest && s->columns % step == 0;
  };
  if (dtype == DType::kFloat32 && suits(StatsStep<LoadFloat32>())) {
    ScanBoth<LoadFloat32>(dtype, p, n, chunk, node, s);
  } else if (dtype == DType::kBFloat16 && suits(StatsStep<LoadBFloat16>())) {
    ScanBoth<LoadBFloat16>(dtype, p, n, chunk, node, s);
  } else if (dtype == DType::kFloat16 && suits(StatsStep<LoadFloat16>())) {
    ScanBoth<LoadFloat16>(dtype, p, n, chunk, node, s);
  } else {
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
