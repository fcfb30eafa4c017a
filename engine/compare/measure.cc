#include "engine/compare/measure.h"

#include <algorithm>
#include <optional>

#include "engine/base/threads.h"
#include "engine/compare/exchange.h"
#include "engine/compare/judge.h"
#include "engine/compare/measure_tensors.h"
#include "engine/compare/operations.h"
#include "engine/compare/residency.h"
#include "engine/compare/rounding.h"

namespace msprobe {

void MeasureRows(const CompareOptions& options, Comparison* c) {
  c->measures.assign(c->rows.size(), {});
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  constexpr size_t kChunk = 512;  // pairs
  const size_t chunks = (c->pairs.size() + kChunk - 1) / kChunk;
  Residency residency(c->target, c->golden);
  pool.ParallelFor(chunks, [&](size_t chunk) {
    const size_t end = std::min(c->pairs.size(), (chunk + 1) * kChunk);
    const RecordPair& last = c->pairs[end - 1];
    residency.Passed(last.first_row + last.row_count - c->pairs[chunk * kChunk].first_row);
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
        const double explained =
            c->Thresholds().Explained(record.api, CoarserDType(target.dtype, golden.dtype));
        const bool unwritten =
            output ? uninitialised
                   : exchange && PartOf(*exchange, record, golden) == ExchangePart::kBuffer;
        JudgeLeaves(target, golden, c->mode,
                    {.tolerance = options.tolerance, .explained = explained}, &measures[i]);
        // What the call sums only matters where its numbers are not simply the same.
        if (output && measures[i].verdict != RowVerdict::kEqual) {
          if (terms < 0) terms = SummedTerms(c->golden, record);
          const JudgeOptions judge{.tolerance = options.tolerance,
                                   .terms = terms,
                                   .magnitude = SummedMagnitude(c->golden, record, golden),
                                   .explained = explained};
          JudgeLeaves(target, golden, c->mode, judge, &measures[i]);
        }
        if (unwritten && measures[i].verdict != RowVerdict::kEqual) {
          measures[i].verdict = RowVerdict::kUnknown;
          measures[i].reason = Reason::kUninitialised;
        }
      }
    }
  });
  if (c->mode == Mode::kTensor) MeasureTensors(options, pool, c);
}

}  // namespace msprobe
