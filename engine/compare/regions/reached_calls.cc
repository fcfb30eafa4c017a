#include "engine/compare/regions/reached_calls.h"

#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/base/threads.h"
#include "engine/compare/model/content_ids.h"
#include "engine/compare/regions/pair_rows.h"

namespace msprobe::compare {
namespace {

class Finder {
 public:
  Finder(const Comparison& c, const OpenCalls& calls, const ValueFlows& flows)
      : c_(c), rows_(c), calls_(calls), flows_(flows), content_(ContentOf(c)) {
    ThreadPool::Default().ParallelFor(2, [&](size_t side) {
      const bool target = side == 0;
      gradients_[side] = ContentSet(*content_);
      for (const Record& record : rows_.DumpOf(target).records) {
        if (record.direction != Direction::kBackward) continue;
        for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i)
          gradients_[side].Insert(content_->ResultOf(target, static_cast<int32_t>(i)));
      }
    });
  }

  std::vector<char> Find() {
    reached_ = calls_.own;
    ContentSet values[2] = {ContentSet(*content_), ContentSet(*content_)};  // of reached calls
    std::unordered_set<std::string_view> modules;  // calls of modules that hold such calls
    std::unordered_set<std::string_view> apis;     // modules that such calls are of
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!calls_.open[p]) continue;
      char& reached = reached_[p];
      const RecordPair& pair = c_.pairs[p];
      const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
      if (forward >= 0 && static_cast<size_t>(forward) < p)
        reached |= reached_[forward] || IsTakenByReached(forward) || TakesUnseenSum(p);
      if (rows_.RecordOf(p).direction == Direction::kParameterGrad)
        reached |= apis.count(rows_.RecordOf(p).api) > 0;
      if (rows_.RecordOf(p).is_module) {
        reached |= pair.target >= 0 && modules.count(c_.target.records[pair.target].name) > 0;
        reached |= pair.golden >= 0 && modules.count(c_.golden.records[pair.golden].name) > 0;
      }
      rows_.EachRow(p, [&](uint32_t i) {
        if (!rows_.IsOpen(i)) return;
        rows_.EachLeafIndex(i, [&](int32_t leaf, bool target) {
          reached |= values[target ? 0 : 1].Has(content_->ArgumentOf(target, leaf));
        });
      });
      if (!reached) continue;
      if (rows_.RecordOf(p).is_module) apis.insert(rows_.RecordOf(p).api);
      if (pair.target >= 0) modules.insert(c_.target.records[pair.target].parent);
      if (pair.golden >= 0) modules.insert(c_.golden.records[pair.golden].parent);
      rows_.EachRow(p, [&](uint32_t i) {
        rows_.EachLeafIndex(i, [&](int32_t leaf, bool target) {
          values[target ? 0 : 1].Insert(content_->ResultOf(target, leaf));
        });
      });
    }
    return std::move(reached_);
  }

 private:
  // Whether a call that is reached takes a result of `p`: then the gradient of the result has other
  // parts in the other run.
  bool IsTakenByReached(size_t p) const {
    bool taken = false;
    rows_.EachRow(p, [&](uint32_t i) {
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
        if (taken || !IsTensorResult(leaf)) return;
        for (const ValueUse& use : flows_[target ? 0 : 1].UsesOf(leaf))
          taken |= rows_.RecordOf(use.pair).direction == Direction::kForward && reached_[use.pair];
      });
    });
    return taken;
  }

  // Whether a gradient that this backward call takes differs, and no recorded call made it in one of
  // the runs: the sum of the gradients of several calls, which other calls may share otherwise, or
  // what a call makes that is not recorded, such as x.T. It is no proof of another structure, but
  // what it leads to decides.
  bool TakesUnseenSum(size_t p) const {
    if (rows_.RecordOf(p).direction != Direction::kBackward || !c_.pairs[p].matched()) return false;
    bool unseen = false;
    rows_.EachRow(p, [&](uint32_t i) {
      if (c_.measures[i].verdict != RowVerdict::kDiffers) return;
      rows_.EachLeafIndex(i, [&](int32_t leaf, bool target) {
        const int32_t taken = content_->ArgumentOf(target, leaf);
        unseen |= taken >= 0 && !gradients_[target ? 0 : 1].Has(taken);
      });
    });
    return unseen;
  }

  const Comparison& c_;
  const PairRows rows_;
  const OpenCalls& calls_;
  const ValueFlows& flows_;
  std::shared_ptr<const ContentIds> content_;
  ContentSet gradients_[2];  // that backward calls return, of the target and the golden
  std::vector<char> reached_;
};

}  // namespace

std::vector<char> FindReachedCalls(const Comparison& c, const OpenCalls& calls,
                                   const ValueFlows& flows) {
  return Finder(c, calls, flows).Find();
}

}  // namespace msprobe::compare
