// How rows wait and become part of the run that they belong to (sketch_scan.h), on each SIMD
// target.
#if defined(ENGINE_KERNELS_SKETCH_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_SKETCH_RUN_INL_H_
#undef ENGINE_KERNELS_SKETCH_RUN_INL_H_
#else
#define ENGINE_KERNELS_SKETCH_RUN_INL_H_
#endif

#include "engine/kernels/sketch_floats-inl.h"
#include "engine/kernels/sketch_node.h"
#include "engine/kernels/sketch_rows-inl.h"
#include "engine/kernels/sketch_scan.h"
#include "engine/kernels/sketch_short_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Puts the rows that wait into the lanes of their run.
inline void AddWaiting(SketchScan* s);

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

inline void AddWaiting(SketchScan* s) {
  for (size_t k = 0; k < s->waiting; ++k) {
    const int64_t in_block = s->first_waiting + static_cast<int64_t>(k) - s->run.start;
    s->lanes.Add(*s->layout, in_block, k % kRowLanes, {s->rows[2 * k], s->rows[2 * k + 1]});
  }
  s->waiting = 0;
}

#else

// The sums of `count` rows into the lanes of their run; load(k, re, im): of those from number k on,
// as many as a vector has, and zeros. kExact: sums of float, whose products with a phase are exact.
template <bool kExact, class Load>
HWY_INLINE void AddRows(size_t count, SketchScan* s, const Load& load_rows) {
  const DoubleTag d;
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
      load_rows(k, re, im);
      rows_re = hn::Add(rows_re, re);
      rows_im = hn::Add(rows_im, im);
      squares = AddProduct<kExact>(im, im, AddProduct<kExact>(re, re, squares));
      const auto turn = [&](const PhaseTable& phases, DoubleVec& to_re, DoubleVec& to_im) {
        const auto c = hn::LoadU(d, phases.re.data() + in_block + k);
        const auto i = hn::LoadU(d, phases.im.data() + in_block + k);
        to_re = AddProduct<kExact>(re, c, to_re);
        to_re = kExact ? hn::NegMulAdd(im, i, to_re) : hn::Sub(to_re, hn::Mul(im, i));
        to_im = AddProduct<kExact>(im, c, AddProduct<kExact>(re, i, to_im));
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

inline void AddWaiting(SketchScan* s) {
  size_t count = s->waiting;
  if (count + s->lane_rows == 0) return;
  if (!s->whole_in_float()) {
    s->waiting = 0;
    for (size_t k = count; k % kRowLanes != 0; ++k) s->rows[2 * k] = s->rows[2 * k + 1] = 0;
    return AddRows<false>(count, s, [&](size_t k, DoubleVec& re, DoubleVec& im) {
      hn::LoadInterleaved2(DoubleTag(), s->rows.data() + 2 * k, re, im);
    });
  }
  if (s->lane_rows > 0) {
    AddFloatLanes(s->lanes_re.data(), s->rows_re.data() + count);
    AddFloatLanes(s->lanes_im.data(), s->rows_im.data() + count);
    count += s->lane_rows;
  }
  s->waiting = s->lane_rows = 0;
  for (size_t k = count; k % kRowLanes != 0; ++k) s->rows_re[k] = s->rows_im[k] = 0;
  AddRows<true>(count, s, [&](size_t k, DoubleVec& re, DoubleVec& im) {
    re = hn::PromoteTo(DoubleTag(), hn::LoadU(HalfFloatTag(), s->rows_re.data() + k));
    im = hn::PromoteTo(DoubleTag(), hn::LoadU(HalfFloatTag(), s->rows_im.data() + k));
  });
}

// The same for `n` rows of one value each, which are the next ones of the run: a multiple of
// kRowLanes.
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

// As many lanes wait as are added up together.
inline HWY_NOINLINE void AddAllLanes(SketchScan* s) {
  AddFloatLanes(s->lanes_re.data(), s->rows_re.data() + s->waiting);
  AddFloatLanes(s->lanes_im.data(), s->rows_im.data() + s->waiting);
  s->waiting += kBatchRows;
  s->lane_rows = 0;
  if (s->waiting == SketchScan::kRows) AddWaiting(s);
}
// The lanes of `rows` more rows wait.
HWY_INLINE void PushLanes(SketchScan* s, size_t rows) {
  s->lane_rows += rows;
  if (s->lane_rows == kBatchRows) AddAllLanes(s);
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
