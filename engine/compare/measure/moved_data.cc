#include "engine/compare/measure/moved_data.h"

#include <algorithm>
#include <limits>

#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/moving_operations.h"

namespace msprobe::compare {
namespace {

bool ShowsBits(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
  return c.measures[i].tensor >= 0 ||
         (!target.fingerprint.empty() && !golden.fingerprint.empty()) ||
         (!target.checksum.empty() && !golden.checksum.empty());
}

// Whether everything that goes into the call is the same on both sides, bit for bit.
bool InputsAreBitEqual(const Comparison& c, const RecordPair& pair) {
  bool any = false;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Measure& m = c.measures[i];
    if (row.target < 0 || row.golden < 0) return false;
    const Leaf& leaf = c.golden.leaves[row.golden];
    // masked_fill_ keeps a part of what it overwrites: its old content is an input of the move, and
    // so is memory that nobody has written.
    const bool neutral =
        IsNeutral(m) && m.reason != Reason::kOverwritten && m.reason != Reason::kUninitialised;
    if (leaf.slot == Slot::kOutput || neutral) continue;
    if (m.verdict != RowVerdict::kEqual) return false;
    if (leaf.kind != LeafKind::kTensor) continue;
    if (!ShowsBits(c, i)) return false;
    any = true;
  }
  return any;
}

// Judges the rows of one pair, and looks at no others.
void JudgePair(const RecordPair& pair, Comparison* c) {
  if (!pair.matched()) return;
  const Record &target = c->target.records[pair.target], &golden = c->golden.records[pair.golden];
  if (golden.direction != Direction::kForward || golden.is_module) return;
  int known = -1;  // whether the rule holds for the call: not asked yet
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    Measure& m = c->measures[i];
    const Row& row = c->rows[i];
    if (m.verdict != RowVerdict::kNoise || row.target < 0 || row.golden < 0) continue;
    const Leaf &a = c->target.leaves[row.target], &b = c->golden.leaves[row.golden];
    if (b.slot != Slot::kOutput || b.kind != LeafKind::kTensor || a.dtype != b.dtype) continue;
    if (known < 0)
      known = MovesData(target.api) && MovesData(golden.api) && InputsAreBitEqual(*c, pair);
    if (known == 0) break;
    m.verdict = RowVerdict::kDiffers;
    m.reason = Reason::kMoved;
    m.severity = std::numeric_limits<double>::infinity();
  }
}

}  // namespace

void JudgeMovedData(Comparison* c) {
  constexpr size_t kChunk = 1024;  // pairs
  const size_t pairs = c->pairs.size();
  ThreadPool::Default().ParallelFor((pairs + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t p = chunk * kChunk; p < std::min(pairs, (chunk + 1) * kChunk); ++p)
      JudgePair(c->pairs[p], c);
  });
}

}  // namespace msprobe::compare
