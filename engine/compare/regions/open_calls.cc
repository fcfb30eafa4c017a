#include "engine/compare/regions/open_calls.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "engine/base/threads.h"
#include "engine/compare/judge/moving_operations.h"
#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/pair_rows.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {
namespace {

constexpr size_t kChunk = 1024;  // pairs that a thread takes at once

class Finder {
 public:
  explicit Finder(const Comparison& c) : c_(c), rows_(c) {
    calls_.open.assign(c.pairs.size(), 0);
    calls_.own.assign(c.pairs.size(), 0);
  }

  OpenCalls Find() {
    const size_t pairs = c_.pairs.size();
    ThreadPool::Default().ParallelFor((pairs + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t p = chunk * kChunk; p < std::min(pairs, (chunk + 1) * kChunk); ++p) LookAt(p);
    });
    FindReordered();
    FindMovedCalls();
    return std::move(calls_);
  }

 private:
  void LookAt(size_t p) {
    if (c_.IsPartOfBatch(static_cast<int32_t>(p))) return;
    if (!c_.pairs[p].matched()) {
      calls_.open[p] = calls_.own[p] = 1;
      return;
    }
    rows_.EachRow(p, [&](uint32_t i) { calls_.open[p] |= rows_.IsOpen(i); });
    if (calls_.open[p]) calls_.own[p] = IsOtherCall(p);
  }

  // Whether the two calls of a pair do different things: other operations, or the same one with
  // tensors of other shapes and kinds.
  bool IsOtherCall(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    const Record &t = c_.target.records[pair.target], &g = c_.golden.records[pair.golden];
    if (!t.is_module && BaseApi(t.api) != BaseApi(g.api)) return true;
    if (MakesOtherShape(p)) return true;
    const bool moves = t.direction == Direction::kForward && MovesData(t.api);
    bool other = false;
    rows_.EachRow(p, [&](uint32_t i) {
      const Reason reason = c_.measures[i].reason;
      const bool part = reason == Reason::kOtherParts;
      if (!rows_.IsOpen(i) && !part) return;
      const bool one_side = reason == Reason::kKindDiffers || reason == Reason::kNoPartner;
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) {
        if (leaf.kind != LeafKind::kTensor) return;
        // Whether a batch is divided into another number of parts.
        const bool other_parts = moves && reason == Reason::kNoPartner;
        const bool of_other_argument =
            t.direction == Direction::kBackward &&
            (one_side || (reason == Reason::kShapeDiffers && ForwardTakesOtherShapes(p)));
        other |= IsTensorArgument(leaf) ? one_side || part || reason == Reason::kShapeDiffers
                                        : other_parts || of_other_argument;
      });
    });
    return other;
  }

  // Whether the calls make a tensor of nothing but numbers, and of another shape: arange(4) beside
  // arange(1), zeros(20, 8) beside zeros(16, 8).
  bool MakesOtherShape(size_t p) const {
    bool takes = false, other = false;
    rows_.EachRow(p, [&](uint32_t i) {
      const Row& row = c_.rows[i];
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) { takes |= IsTensorArgument(leaf); });
      if (row.target < 0 || row.golden < 0) return;
      const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
      other |= IsTensorResult(t) && IsTensorResult(g) && t.shape.view() != g.shape.view();
    });
    return other && !takes;
  }

  // What a backward call returns has the shapes of what its forward call took.
  bool ForwardTakesOtherShapes(size_t p) const {
    const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
    if (forward < 0 || !c_.pairs[forward].matched()) return false;
    bool other = false;
    rows_.EachRow(forward, [&](uint32_t i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || row.golden < 0) return;
      const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
      other |= IsTensorArgument(t) && IsTensorArgument(g) && t.shape.view() != g.shape.view();
    });
    return other;
  }

  // 0: the leaf is no argument, or has no numbers.
  uint64_t ArgumentKey(const Leaf& leaf, bool target) const {
    // To number all contents would take longer than to read those of a few calls.
    if (IsTensorArgument(leaf))
      return c_.content != nullptr ? static_cast<uint64_t>(c_.content->Of(target, leaf) + 1)
                                   : ContentKey(leaf);
    const bool plain =
        leaf.kind == LeafKind::kScalar && (leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg);
    return plain ? HashText(leaf.value, 5) : 0;
  }

  // Calls use(index of the leaf) for each value of one run that is wrong.
  template <typename Use>
  void EachWrongValue(size_t p, bool target, Use use) const {
    rows_.EachRow(p, [&](uint32_t i) {
      const int32_t index = target ? c_.rows[i].target : c_.rows[i].golden;
      // Two masks may have equally many elements that are true.
      if (index >= 0 && (rows_.IsOpen(i) || c_.measures[i].reason == Reason::kOtherBits))
        use(index);
    });
  }

  // Calls use(key) for each argument of one run that is wrong: of the operation and the argument.
  // Tensors that are no wrong argument of the other run are left out.
  template <typename Use>
  void EachWrongArgument(size_t p, bool target, Use use) const {
    const std::string_view operation =
        rows_.RecordOf(p).is_module ? std::string_view() : BaseApi(rows_.RecordOf(p).api);
    EachWrongValue(p, target, [&](int32_t index) {
      if (c_.content != nullptr) {
        const int32_t content = c_.content->ArgumentOf(target, index);
        if (content >= 0 && !wrong_[target ? 1 : 0].Has(content)) return;
      }
      const uint64_t key = ArgumentKey(rows_.DumpOf(target).leaves[index], target);
      if (key != 0) use(HashText(operation, key));
    });
  }

  // Calls of one operation that ran in another order: what the one takes in the target, another one
  // takes in the golden.
  void FindReordered() {
    std::vector<uint32_t> asked;
    for (uint32_t p = 0; p < c_.pairs.size(); ++p) {
      if (calls_.open[p] && !calls_.own[p]) asked.push_back(p);
    }
    if (asked.empty()) return;
    FingerprintSet taken[2];
    ThreadPool& pool = ThreadPool::Default();
    pool.ParallelFor(c_.content != nullptr ? 2 : 0, [&](size_t side) {
      wrong_[side] = ContentSet(*c_.content);
      for (const uint32_t p : asked)
        EachWrongValue(p, /*target=*/side == 0, [&](int32_t index) {
          wrong_[side].Insert(c_.content->ArgumentOf(side == 0, index));
        });
    });
    pool.ParallelFor(2, [&](size_t side) {
      for (const uint32_t p : asked)
        EachWrongArgument(p, /*target=*/side == 0,
                          [&](uint64_t key) { taken[side].InsertHash(key); });
    });
    pool.ParallelFor((asked.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t i = chunk * kChunk; i < std::min(asked.size(), (chunk + 1) * kChunk); ++i) {
        bool crossed[2] = {false, false};
        for (const size_t side : {0, 1})
          EachWrongArgument(asked[i], /*target=*/side == 0,
                            [&](uint64_t key) { crossed[side] |= taken[1 - side].HasHash(key); });
        calls_.own[asked[i]] |= crossed[0] && crossed[1];
      }
    });
  }

  // Calls that ran before a call in the one run and behind it in the other.
  void FindMovedCalls() {
    int32_t last = -1;  // the largest golden record so far
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!c_.pairs[p].matched()) continue;
      if (calls_.open[p]) calls_.own[p] |= c_.pairs[p].golden < last;
      last = std::max(last, c_.pairs[p].golden);
    }
    int32_t first = INT32_MAX;  // the smallest golden record from here on
    for (size_t p = c_.pairs.size(); p-- > 0;) {
      if (!c_.pairs[p].matched()) continue;
      if (calls_.open[p]) calls_.own[p] |= c_.pairs[p].golden > first;
      first = std::min(first, c_.pairs[p].golden);
    }
  }

  const Comparison& c_;
  const PairRows rows_;
  OpenCalls calls_;
  ContentSet wrong_[2];  // arguments that are wrong, of the target and of the golden
};

}  // namespace

OpenCalls FindOpenCalls(const Comparison& c) { return Finder(c).Find(); }

}  // namespace msprobe::compare
