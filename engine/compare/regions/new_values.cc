#include "engine/compare/regions/new_values.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/pair_rows.h"

namespace msprobe::compare {
namespace {

constexpr int32_t kNear = 256;  // calls behind the first wrong one that are looked at
constexpr int kMost = 4096;     // values on the way; bounds the time

// Operations that show the elements of one tensor in another form, or a part of them.
bool ShowsOtherwise(std::string_view api) {
  constexpr std::array<std::string_view, 28> kNames = {
      "chunk",   "clone",     "contiguous", "detach",    "expand",    "expand_as", "flatten",
      "getitem", "movedim",   "narrow",     "permute",   "ravel",     "reshape",   "reshape_as",
      "select",  "split",     "squeeze",    "swapaxes",  "swapdims",  "t",         "tensor_split",
      "to",      "transpose", "unbind",     "unflatten", "unsqueeze", "view",      "view_as"};
  static_assert(std::is_sorted(kNames.begin(), kNames.end()));
  return std::binary_search(kNames.begin(), kNames.end(), BaseApi(api));
}

bool IsResult(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && leaf.slot == Slot::kOutput;
}
bool IsArgument(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && leaf.slot != Slot::kOutput;
}

class Search {
 public:
  Search(const Comparison& c, int32_t first)
      : c_(c),
        content_(ContentOf(c)),
        known_(*content_),
        opened_(*content_),
        maker_(content_->size(), -1) {
    for (const Leaf& leaf : c.golden.leaves) known_.Insert(content_->Of(false, leaf));
    for (size_t i = 0; i < c.rows.size(); ++i) {
      const RowVerdict verdict = c.measures[i].verdict;
      const bool agrees = verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise;
      if (agrees && c.rows[i].target >= 0) known_.Insert(content_->Of(true, c.rows[i].target));
    }
    taker_ = TakerOfWrongShape(first);
    if (taker_.pair < 0) return;
    // The first call that made a content: the call of an operation, before that of its module.
    const int32_t end = c.pairs[taker_.pair].target;
    for (int32_t r = 0; r < end; ++r) {
      for (const Leaf& leaf : c.target.LeavesOf(c.target.records[r])) {
        const int32_t id = IsResult(leaf) ? content_->Of(true, leaf) : -1;
        if (id >= 0 && maker_[id] < 0) maker_[id] = r;
      }
    }
  }

  NewValue Find() {
    if (taker_.pair < 0) return {};
    std::vector<int32_t> open;  // contents on the way to the wrong value
    Open(content_->Of(true, c_.rows[taker_.row].target), &open);
    int32_t first = -1;  // record
    for (size_t i = 0; i < open.size(); ++i) {
      if (open.size() > kMost) return {};  // not all were looked at
      const int32_t made = open[i], maker = maker_[made];
      bool takes_new = false;
      for (const Leaf& leaf : c_.target.LeavesOf(c_.target.records[maker])) {
        const int32_t taken = IsArgument(leaf) ? content_->Of(true, leaf) : -1;
        if (taken == made || !IsNew(taken)) continue;
        takes_new = true;
        Open(taken, &open);
      }
      if (!takes_new && (first < 0 || maker < first)) first = maker;
    }
    return first < 0 ? NewValue() : NewValue{PairOf(first), taker_.pair, taker_.row};
  }

 private:
  struct Taker {
    int32_t pair = -1, row = -1;
  };

  // The first call from `p` on that takes a wrong value of the right shape: where the runs make other
  // calls, shapes in between say nothing.
  Taker TakerOfWrongShape(int32_t p) const {
    const int32_t end = std::min<int32_t>(p + kNear, static_cast<int32_t>(c_.pairs.size()));
    for (; p < end; ++p) {
      const RecordPair& pair = c_.pairs[p];
      const Record& record = PairRows(c_).RecordOf(p);
      if (IsOptimizerCall(record.api)) break;  // what it takes was made in the backward pass
      if (!pair.matched() || record.direction != Direction::kForward) continue;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const Row& row = c_.rows[i];
        if (row.target < 0 || row.golden < 0 || c_.measures[i].verdict != RowVerdict::kDiffers)
          continue;
        const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
        if (IsArgument(t) && IsArgument(g) && t.shape.SameWithoutOnes(g.shape))
          return {p, static_cast<int32_t>(i)};
      }
    }
    return {};
  }

  // Whether a recorded call made the value, and the golden has it in no form.
  bool IsNew(int32_t id) { return IsUnknown(id) && !ShowsKnown(id, 0); }
  bool IsUnknown(int32_t id) const { return id >= 0 && !known_.Has(id) && maker_[id] >= 0; }
  void Open(int32_t id, std::vector<int32_t>* open) {
    if (opened_.Has(id) || !IsNew(id)) return;
    opened_.Insert(id);
    open->push_back(id);
  }
  // Whether an unknown value shows a known one in another form: then it is known from now on, so that
  // each value is gone through once, however many calls show it.
  bool ShowsKnown(int32_t id, int depth) {
    constexpr int kDeepest = 16;
    const Record& maker = c_.target.records[maker_[id]];
    if (!ShowsOtherwise(maker.api) || depth > kDeepest) return false;
    for (const Leaf& leaf : c_.target.LeavesOf(maker)) {
      const int32_t from = IsArgument(leaf) ? content_->Of(true, leaf) : -1;
      if (from != id && IsUnknown(from) && !ShowsKnown(from, depth + 1)) return false;
    }
    known_.Insert(id);
    return true;
  }

  int32_t PairOf(int32_t record) const {
    for (int32_t p = taker_.pair; p >= 0; --p) {
      if (c_.pairs[p].target == record) return p;
    }
    return -1;
  }

  const Comparison& c_;
  const std::shared_ptr<const ContentIds> content_;
  ContentSet known_;            // contents that the golden has, or that agree with their partners
  ContentSet opened_;           // contents that are on the way
  std::vector<int32_t> maker_;  // of each content: the target's record that made it; -1: none
  Taker taker_;
};

}  // namespace

NewValue FirstNewValue(const Comparison& c, int32_t p) {
  if (!HasOperations(c.target) || !HasOperations(c.golden) || OfTwoFrameworks(c.target, c.golden) ||
      PairRows(c).RecordOf(p).direction != Direction::kForward)
    return {};
  return Search(c, p).Find();
}

}  // namespace msprobe::compare
