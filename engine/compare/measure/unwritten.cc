#include "engine/compare/measure/unwritten.h"

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/fingerprint_set.h"

namespace msprobe::compare {
namespace {

class UnwrittenRows {
 public:
  explicit UnwrittenRows(Comparison* c) : c_(*c) {}

  void Run() {
    // Ranks of two layouts pass other groups and sizes: these do not end what the runs have in
    // common.
    const bool joined = !c_.target.ranks.empty() && !c_.golden.ranks.empty();
    for (const RecordPair& pair : c_.pairs) {
      if (pair.matched() && !Forgive(pair) && !joined) return;
    }
  }

 private:
  bool Differs(uint32_t i) const { return c_.measures[i].verdict == RowVerdict::kDiffers; }
  // What unwritten memory may explain: it has other bits, be they near, or holds NaN in both runs.
  bool Disagrees(uint32_t i) const {
    const Measure& m = c_.measures[i];
    return m.verdict == RowVerdict::kDiffers || m.verdict == RowVerdict::kNoise ||
           m.reason == Reason::kBothNaN;
  }
  bool IsOnBothSides(uint32_t i) const { return c_.rows[i].target >= 0 && c_.rows[i].golden >= 0; }
  bool IsOutput(uint32_t i) const {
    return c_.golden.leaves[c_.rows[i].golden].slot == Slot::kOutput;
  }

  // Whether the row shows unwritten memory on both sides, itself or as a copy.
  bool IsUnwritten(uint32_t i) {
    const Row& row = c_.rows[i];
    if (!c_.target.AllocationOf(row.target).empty() && !c_.golden.AllocationOf(row.golden).empty())
      return true;
    const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
    return !t.fingerprint.empty() && !g.fingerprint.empty() && target_copies_.Has(t.fingerprint) &&
           golden_copies_.Has(g.fingerprint);
  }

  void Forgive(uint32_t i) {
    c_.measures[i].verdict = RowVerdict::kUnknown;
    c_.measures[i].reason = Reason::kUninitialised;
    c_.measures[i].severity = kernels::Diff::kNaN;
  }

  // False: something differs for another reason.
  bool Forgive(const RecordPair& pair) {
    const uint32_t end = pair.first_row + pair.row_count;
    bool reads = false;
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (!IsOnBothSides(i) || !Disagrees(i) || IsOutput(i) || !IsUnwritten(i)) continue;
      Forgive(i);
      reads = true;
    }
    const bool copies = reads &&
                        OperationsOf(c_).Of(c_.target.records[pair.target].api.view()).Moves() &&
                        OperationsOf(c_).Of(c_.golden.records[pair.golden].api.view()).Moves();
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (!IsOnBothSides(i) || !Differs(i) || IsOutput(i)) continue;
      // Which part of unwritten memory is taken (narrow, split) is as meaningless as its content.
      if (!copies || c_.golden.leaves[c_.rows[i].golden].kind != LeafKind::kScalar) return false;
      Forgive(i);
    }
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (!IsOnBothSides(i) || !Disagrees(i)) continue;
      const Row& row = c_.rows[i];
      const bool unwritten = IsUnwritten(i);
      if (!unwritten && !copies && Differs(i)) return false;
      if (!unwritten && !copies) continue;
      Forgive(i);
      if (unwritten) continue;
      target_copies_.Insert(c_.target.leaves[row.target].fingerprint);
      golden_copies_.Insert(c_.golden.leaves[row.golden].fingerprint);
    }
    return true;
  }

  Comparison& c_;
  FingerprintSet target_copies_, golden_copies_;  // of unwritten memory, made by calls that move it
};

}  // namespace

void ForgiveUnwritten(Comparison* c) {
  if (c->target.unwritten.empty() || c->golden.unwritten.empty()) return;
  UnwrittenRows(c).Run();
}

}  // namespace msprobe::compare
