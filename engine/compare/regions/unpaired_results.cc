#include "engine/compare/regions/unpaired_results.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/threads.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/regions/agreeing_gradients.h"

namespace msprobe::compare {
namespace {

bool IsResult(const Leaf& leaf) {
  return leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad ||
         leaf.slot == Slot::kDebug;
}

}  // namespace

// The calls of one run that have no partner.
class UnpairedResults::Side {
 public:
  Side(const Comparison& c, bool target, const ContentIds& content, ContentSet* compared)
      : c_(c),
        target_(target),
        dump_(target ? c.target : c.golden),
        content_(content),
        compared_(*compared) {
    for (size_t i = 0; i < c_.rows.size(); ++i) {
      const Row& row = c_.rows[i];
      const RowVerdict verdict = c_.measures[i].verdict;
      if (row.target < 0 || row.golden < 0) continue;
      if (verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise)
        compared_.Insert(content_.Of(target_, target_ ? row.target : row.golden));
    }
    right_.assign(c_.pairs.size(), false);
    for (size_t p = 0; p < c_.pairs.size(); ++p)
      right_[p] = c_.pairs[p].matched() || c_.IsRewritten(p);
    // A module is recorded behind the calls inside it, which take what it takes: what is found in
    // one pass may tell more in the next.
    constexpr int kMostPasses = 4;
    for (int pass = 0; pass < kMostPasses && Pass(); ++pass) {
    }
  }

  bool IsMine(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    return target_ ? pair.golden < 0 : pair.target < 0;
  }
  bool IsRight(size_t p) const { return right_[p]; }

 private:
  // Backwards through the calls that are not known to be right; whether any was found to be.
  bool Pass() {
    bool found = false;
    for (size_t p = c_.pairs.size(); p-- > 0;) {
      if (right_[p] || !IsMine(p)) continue;
      const Record& record = dump_.records[target_ ? c_.pairs[p].target : c_.pairs[p].golden];
      const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
      if (!ResultsAreCompared(record) && !(forward >= 0 && IsMine(forward) && right_[forward]))
        continue;
      right_[p] = found = true;
      for (const Leaf& leaf : dump_.LeavesOf(record)) compared_.Insert(content_.Of(target_, leaf));
    }
    return found;
  }

  bool ResultsAreCompared(const Record& record) const {
    bool tensors = false, values = false;
    for (const Leaf& leaf : dump_.LeavesOf(record)) {
      if (!IsResult(leaf)) continue;
      values = values || leaf.kind == LeafKind::kScalar;
      if (leaf.kind != LeafKind::kTensor) continue;
      tensors = true;
      if (compared_.Has(content_.Of(target_, leaf))) return true;
    }
    // A number or a text that is read from a tensor changes nothing, and a call that raised (a
    // checkpoint ends its recomputation so) has no results.
    return !tensors && (values || !record.exception.empty());
  }

  const Comparison& c_;
  const bool target_;
  const Dump& dump_;
  const ContentIds& content_;
  ContentSet& compared_;
  std::vector<bool> right_;  // for each pair
};

UnpairedResults::UnpairedResults(const Comparison& c)
    : c_(c), content_(ContentOf(c)), compared_{ContentSet(*content_), ContentSet(*content_)} {
  std::optional<Side> sides[2];
  ThreadPool::Default().ParallelFor(
      2, [&](size_t i) { sides[i].emplace(c, /*target=*/i == 0, *content_, &compared_[i]); });
  const bool without_effect = c.exact.empty() && GradientsAgree(c);
  for (const bool target : {true, false}) {
    const Side& side = *sides[target ? 0 : 1];
    if (!(target ? c.golden : c.target).complete) continue;
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (!side.IsMine(p) || side.IsRight(p)) continue;
      const RecordPair& pair = c.pairs[p];
      const Record& record = target ? c.target.records[pair.target] : c.golden.records[pair.golden];
      if (without_effect && !WritesFirstArgument(record.api)) continue;
      ++nowhere_;
      const auto at = static_cast<int32_t>(p);
      first_ = first_ < 0 ? at : std::min(first_, at);
    }
  }
}

bool UnpairedResults::IsCompared(uint32_t i) const {
  const Row& row = c_.rows[i];
  const bool target = row.target >= 0;
  const Leaf& leaf = target ? c_.target.leaves[row.target] : c_.golden.leaves[row.golden];
  return !IsResult(leaf) || compared_[target ? 0 : 1].Has(content_->Of(target, leaf));
}

}  // namespace msprobe::compare
