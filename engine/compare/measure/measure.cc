#include "engine/compare/measure/measure.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/measure/measure_tensors.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

// The epsilon of bfloat16, the coarsest dtype that programs compute in. float8 and narrower dtypes
// are formats in which single, scaled tensors are stored: their rounding says nothing of later
// calls.
constexpr double kCoarsest = 0x1p-7;

// Fills coarse_row, the first row whose two tensors have different float dtypes, and coarse_dtype,
// the coarsest dtype of such rows. No row before `first` is one.
void FindCoarseDType(uint32_t first, Comparison* c) {
  double coarsest = 0;
  for (uint32_t i = first; i < c->rows.size(); ++i) {
    const Row& row = c->rows[i];
    if (c->measures[i].reason != Reason::kDTypeDiffers || row.target < 0 || row.golden < 0)
      continue;
    const Leaf &target = c->target.leaves[row.target], &golden = c->golden.leaves[row.golden];
    if (target.kind != LeafKind::kTensor) continue;
    const Rounding& r = CoarserRounding(target.dtype, golden.dtype);
    if (r.kind != NumberKind::kFloat || r.epsilon <= coarsest || r.epsilon > kCoarsest) continue;
    if (coarsest == 0) c->coarse_row = i;
    coarsest = r.epsilon;
    c->coarse_dtype = CoarserType(target.dtype, golden.dtype);
  }
}

bool HasOtherArguments(const Comparison& c, const RecordPair& pair) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (c.measures[i].reason == Reason::kValueDiffers) return true;
  }
  return false;
}

// Judges one row by what both sides recorded.
void JudgeRow(const Comparison& c, const Record& record, uint32_t i, double* terms, Measure* m) {
  const Leaf &target = c.target.leaves[c.rows[i].target],
             &golden = c.golden.leaves[c.rows[i].golden];
  // null against a value is a difference only within one tool: another tool may write null for a
  // value that it cannot record.
  if ((target.kind == LeafKind::kNone) != (golden.kind == LeafKind::kNone) &&
      c.target.dialect == c.golden.dialect) {
    *m = {.verdict = RowVerdict::kDiffers,
          .reason = Reason::kKindDiffers,
          .severity = std::numeric_limits<double>::infinity()};
    return;
  }
  JudgeOptions options{.tolerance = c.tolerance};
  if (i > c.coarse_row) options.coarse_dtype = c.coarse_dtype;
  options.explained = c.Thresholds().Explained(
      record.api, JudgedType(target.dtype, golden.dtype, options.coarse_dtype));
  JudgeLeaves(target, golden, c.mode, options, m);
  // The number of summed terms takes time to find: it is needed only for numbers that differ.
  if (target.slot != Slot::kOutput || m->verdict == RowVerdict::kEqual) return;
  if (*terms < 0) *terms = SummedTerms(c.golden, record);
  options.terms = *terms;
  options.magnitude = SummedMagnitude(c.golden, record, golden);
  JudgeLeaves(target, golden, c.mode, options, m);
}

// Judges floats again that come after the first row with two dtypes: they carry the rounding of the
// coarser one.
void JudgeByCoarseDType(Comparison* c) {
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched() || pair.first_row + pair.row_count <= c->coarse_row) continue;
    double terms = -1;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      Measure& m = c->measures[i];
      if (i <= c->coarse_row || row.target < 0 || row.golden < 0) continue;
      if (c->target.leaves[row.target].kind != LeafKind::kTensor ||
          CoarseDTypeFor(*c, pair, i).empty() ||
          (m.verdict != RowVerdict::kDiffers && m.verdict != RowVerdict::kNoise))
        continue;
      JudgeRow(*c, c->golden.records[pair.golden], i, &terms, &m);
    }
  }
}

}  // namespace

ElementType CoarseDTypeFor(const Comparison& c, const RecordPair& pair, uint32_t row) {
  if (row <= c.coarse_row) return {};
  const bool output = c.target.leaves[c.rows[row].target].slot == Slot::kOutput;
  return output && HasOtherArguments(c, pair) ? ElementType() : c.coarse_dtype;
}

void MeasureRows(const CompareOptions& options, Comparison* c) {
  c->measures.assign(c->rows.size(), {});
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  constexpr size_t kChunk = 512;  // pairs
  const size_t chunks = (c->pairs.size() + kChunk - 1) / kChunk;
  PageRelease pages(c->target, c->golden);
  std::atomic<uint32_t> two_dtypes = UINT32_MAX;  // no row before this one has two float dtypes
  pool.ParallelFor(chunks, [&](size_t chunk) {
    const size_t end = std::min(c->pairs.size(), (chunk + 1) * kChunk);
    const RecordPair& last = c->pairs[end - 1];
    pages.RowsDone(last.first_row + last.row_count - c->pairs[chunk * kChunk].first_row);
    for (size_t p = chunk * kChunk; p < end; ++p) {
      const RecordPair& pair = c->pairs[p];
      Measure* measures = c->measures.data() + pair.first_row;
      if (pair.target < 0 || pair.golden < 0) {
        for (uint32_t i = 0; i < pair.row_count; ++i) measures[i].reason = Reason::kNoPartner;
        continue;
      }
      const Record& record = c->golden.records[pair.golden];
      double terms = -1;
      const bool uninitialised =
          record.direction == Direction::kForward && ReturnsUninitialised(record.api);
      const std::optional<Exchange> exchange = ExchangeOf(c->golden, record);
      for (uint32_t i = 0; i < pair.row_count; ++i) {
        const Row& row = c->rows[pair.first_row + i];
        if (row.target < 0 || row.golden < 0) {
          measures[i].reason = Reason::kNoPartner;
          continue;
        }
        const Leaf &target = c->target.leaves[row.target], &golden = c->golden.leaves[row.golden];
        const bool output = target.slot == Slot::kOutput;
        const bool unwritten =
            output ? uninitialised
                   : exchange && PartOf(*exchange, record, golden) == ExchangePart::kBuffer;
        JudgeRow(*c, record, pair.first_row + i, &terms, &measures[i]);
        if (measures[i].reason == Reason::kDTypeDiffers) {
          uint32_t first = two_dtypes.load(std::memory_order_relaxed);
          while (pair.first_row < first &&
                 !two_dtypes.compare_exchange_weak(first, pair.first_row)) {
          }
        }
        if (unwritten && measures[i].verdict != RowVerdict::kEqual) {
          measures[i].verdict = RowVerdict::kUnknown;
          measures[i].reason = Reason::kUninitialised;
        }
      }
    }
  });
  if (c->mode != Mode::kChecksum && two_dtypes < UINT32_MAX) {
    FindCoarseDType(two_dtypes, c);
    if (c->coarse_row < UINT32_MAX) JudgeByCoarseDType(c);
  }
  if (c->mode == Mode::kTensor) MeasureTensors(options, pool, c);
}

}  // namespace msprobe::compare
