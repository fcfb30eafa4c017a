#include "engine/compare/measure/measure.h"

#include <algorithm>
#include <optional>

#include "engine/base/messages/message.h"
#include "engine/base/threads.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/measure/judge_row.h"
#include "engine/compare/measure/measure_tensors.h"
#include "engine/compare/measure/noise_dtype.h"
#include "engine/compare/model/left_unwritten.h"
#include "engine/compare/model/page_release.h"

namespace msprobe::compare {
namespace {

// Whether a tensor that cannot be read for this reason is only a shape and a dtype.
bool HasNoElements(std::string_view reason) {
  return reason == "meta tensor" || reason == "fake tensor";
}

// Says in the notes of rows without a common number why a side has none. Tensors that have no
// elements on either side say nothing against a run.
void NoteUnreadable(Comparison* c) {
  if (c->target.unreadable.empty() && c->golden.unreadable.empty()) return;
  for (size_t i = 0; i < c->rows.size(); ++i) {
    const Reason reason = c->measures[i].reason;
    if (reason != Reason::kNoCommonNumber && reason != Reason::kNoFile) continue;
    const std::string_view target = c->target.UnreadableOf(c->rows[i].target),
                           golden = c->golden.UnreadableOf(c->rows[i].golden);
    if (target.empty() && golden.empty()) continue;
    if (reason == Reason::kNoFile && (target != golden || !HasNoElements(target))) continue;
    if (c->notes.empty()) c->notes.resize(c->rows.size());
    Message& note = c->notes[i];
    if (target == golden) {
      note = Message(target);
      if (HasNoElements(target)) c->measures[i].reason = Reason::kNothingRecorded;
    } else {
      const Message ours = target.empty() ? Message() : "target: {}"_t(target),
                    theirs = golden.empty() ? Message() : "golden: {}"_t(golden);
      note = Message::Joined({ours, theirs}, ", ");
    }
  }
}

}  // namespace

void MeasureRows(const CompareOptions& options, Comparison* c) {
  c->measures.assign(c->rows.size(), {});
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  constexpr size_t kChunk = 512;  // pairs
  const size_t chunks = (c->pairs.size() + kChunk - 1) / kChunk;
  PageRelease pages(c->target, c->golden);
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
      RowJudge judge(*c, pair);
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
            (output ? uninitialised
                    : exchange && PartOf(*exchange, record, golden) == ExchangePart::kBuffer) ||
            LeftUnwritten(c->target, row.target) || LeftUnwritten(c->golden, row.golden);
        judge.Judge(pair.first_row + i, ElementType(), &measures[i]);
        if (unwritten && measures[i].verdict != RowVerdict::kEqual) {
          measures[i].verdict = RowVerdict::kUnknown;
          measures[i].reason = Reason::kUninitialised;
        }
      }
    }
  });
  if (c->mode != Mode::kChecksum) JudgeByNoiseDType(c);
  if (c->mode == Mode::kTensor) MeasureTensors(options, pool, c);
  NoteUnreadable(c);
}

}  // namespace msprobe::compare
