#include "engine/compare/regions/reached_calls.h"

#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/pair_rows.h"

namespace msprobe::compare {
namespace {

class Finder {
 public:
  Finder(const Comparison& c, const OpenCalls& calls, const ValueFlows& flows)
      : c_(c), rows_(c), calls_(calls), flows_(flows) {
    for (const bool target : {true, false}) {
      const Dump& dump = rows_.DumpOf(target);
      for (const Leaf& leaf : dump.leaves) {
        const bool is_gradient =
            IsTensorResult(leaf) && dump.records[leaf.record].direction == Direction::kBackward;
        const uint64_t key = is_gradient ? ContentKey(leaf) : 0;
        if (key != 0) gradients_[target ? 0 : 1].InsertHash(key);
      }
    }
  }

  std::vector<char> Find() {
    reached_ = calls_.own;
    std::vector<char> values[2] = {std::vector<char>(flows_[0].size(), 0),
                                   std::vector<char>(flows_[1].size(), 0)};
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
        rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
          const int side = target ? 0 : 1;
          const int32_t value = IsTensorArgument(leaf) ? flows_[side].ValueOf(leaf) : -1;
          if (value >= 0) reached |= values[side][value];
        });
      });
      if (!reached) continue;
      if (rows_.RecordOf(p).is_module) apis.insert(rows_.RecordOf(p).api);
      if (pair.target >= 0) modules.insert(c_.target.records[pair.target].parent);
      if (pair.golden >= 0) modules.insert(c_.golden.records[pair.golden].parent);
      rows_.EachRow(p, [&](uint32_t i) {
        rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
          const int side = target ? 0 : 1;
          const int32_t value = IsTensorResult(leaf) ? flows_[side].ValueOf(leaf) : -1;
          if (value >= 0) values[side][value] = 1;
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
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
        const uint64_t key = IsTensorArgument(leaf) ? ContentKey(leaf) : 0;
        unseen |= key != 0 && !gradients_[target ? 0 : 1].HasHash(key);
      });
    });
    return unseen;
  }

  const Comparison& c_;
  const PairRows rows_;
  const OpenCalls& calls_;
  const ValueFlows& flows_;
  FingerprintSet
      gradients_[2];  // contents that backward calls return, of the target and the golden
  std::vector<char> reached_;
};

}  // namespace

std::vector<char> FindReachedCalls(const Comparison& c, const OpenCalls& calls,
                                   const ValueFlows& flows) {
  return Finder(c, calls, flows).Find();
}

}  // namespace msprobe::compare
