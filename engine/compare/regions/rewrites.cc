#include "engine/compare/regions/rewrites.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/threads.h"
#include "engine/compare/judge/carried.h"
#include "engine/compare/judge/moving_operations.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/regions/agreeing_gradients.h"
#include "engine/compare/regions/equal_values.h"
#include "engine/compare/regions/gradient_sums.h"
#include "engine/compare/regions/joined_tensors.h"
#include "engine/compare/regions/open_calls.h"
#include "engine/compare/regions/pair_rows.h"
#include "engine/compare/regions/reached_calls.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {
namespace {

// How often the calls are gone through. One pass is enough, backwards, unless calls ran in another
// order, or a backward call asks for its forward call.
constexpr int kMostPasses = 8;

// Whether all elements are one number, which says little of the tensor.
bool IsConstant(const Leaf& leaf) { return leaf.has_stats && leaf.max_value == leaf.min_value; }

class Rewrites {
 public:
  explicit Rewrites(Comparison* c) : c_(*c), rows_(*c), calls_(FindOpenCalls(*c)) {}

  bool Find() {
    const auto& own = calls_.own;
    const bool other_structure =
        std::any_of(own.begin(), own.end(), [](char is_own) { return is_own != 0; });
    gradients_agree_ = GradientsAgree(c_);
    if (!other_structure && !(gradients_agree_ && OnlyOrderDiffers())) return false;
    content_ = &ContentOf(&c_);
    // A forward call that agrees is followed, too, if the gradient of its result does not.
    std::vector<char> followed = calls_.open;
    for (size_t p = 0; p < c_.forward_of.size(); ++p) {
      if (calls_.open[p] && c_.forward_of[p] >= 0) followed[c_.forward_of[p]] = 1;
    }
    flows_.emplace(FlowsOf(c_, followed));
    sums_.emplace(c_);
    reached_ = FindReachedCalls(c_, calls_, *flows_);
    values_.emplace(c_, reached_);
    FindLimits();
    FindMoved();
    FindCounterparts();
    has_backward_.assign(c_.pairs.size(), 0);
    forward_is_before_ = true;
    for (size_t p = 0; p < c_.forward_of.size(); ++p) {
      const int32_t forward = c_.forward_of[p];
      if (forward < 0) continue;
      has_backward_[forward] = 1;
      forward_is_before_ &= static_cast<size_t>(forward) < p;
    }
    for (size_t p = 0; p < c_.pairs.size() && !any_parts_; ++p)
      any_parts_ = c_.IsPartOfBatch(static_cast<int32_t>(p));
    of_modules_ = !HasOperations(c_.target) && !HasOperations(c_.golden);
    if (of_modules_) around_[0] = ModulesAround(true), around_[1] = ModulesAround(false);
    if (!other_structure) {
      const bool found = FindBetweenEnds();
      if (found) Apply();
      return found;
    }
    NoneIsRight();
    bool any = Passes();
    // Where something is wrong, a position or a view that leads on may be the reason.
    const Sides proven = right_;
    leads_on_ = true;
    const bool more = Passes();
    if (more && NothingDiffers()) {
      any = true;
    } else if (NothingDiffersAs(proven)) {
      right_ = proven;
    } else if (FindAmongAll() || FindBetweenEnds()) {
      any = true;
    } else {
      any = FindStrictly();
    }
    if (any) Apply();
    return any;
  }

 private:
  // For each pair, of the target and of the golden. Each side for itself: two calls may be in one order
  // in the target and in the other in the golden, so that the target's first needs the golden's second
  // and the other way round.
  using Sides = std::array<std::vector<char>, 2>;

  // What no pass changes, for all calls at once on all threads.
  void FindLimits() {
    never_.assign(c_.pairs.size(), 0);
    gives_other_.assign(c_.pairs.size(), 0);
    arguments_agree_.assign(c_.pairs.size(), 0);
    constexpr size_t kChunk = 1024;  // pairs
    const size_t pairs = c_.pairs.size();
    ThreadPool::Default().ParallelFor((pairs + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t p = chunk * kChunk; p < std::min(pairs, (chunk + 1) * kChunk); ++p) {
        if (calls_.open[p]) {
          never_[p] = TakesOtherGradients(p) || UpdatesOtherwise(p);
          gives_other_[p] = GivesOther(p);
        }
        const bool takes_sums = p < c_.forward_of.size() && c_.forward_of[p] >= 0;
        arguments_agree_[p] = takes_sums && c_.pairs[p].matched() && ArgumentsAgree(p);
      }
    });
  }

  bool ArgumentsAgree(size_t p) const {
    bool agree = true;
    rows_.EachRow(p, [&](uint32_t i) {
      if (!rows_.IsOpen(i)) return;
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) { agree &= !IsTensorArgument(leaf); });
    });
    return agree;
  }

  // moved_: the call only moves elements of tensors that are equal bit for bit in both runs. Then
  // its results must be equal bit for bit, too: their statistics do not tell another order.
  void FindMoved() {
    moved_.assign(c_.pairs.size(), 0);
    ContentSet made[2] = {ContentSet(*content_), ContentSet(*content_)};  // by such calls
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!calls_.own[p] || rows_.RecordOf(p).direction != Direction::kForward) continue;
      const RecordPair& pair = c_.pairs[p];
      bool moves = !rows_.RecordOf(p).is_module;
      if (pair.target >= 0) moves = moves && MovesData(c_.target.records[pair.target].api);
      if (pair.golden >= 0) moves = moves && MovesData(c_.golden.records[pair.golden].api);
      rows_.EachRow(p, [&](uint32_t i) {
        rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
          if (!moves || !IsTensorArgument(leaf)) return;
          moves = values_->IsOnBothSides(leaf, target, /*bits=*/true) ||
                  made[target ? 0 : 1].Has(content_->Of(target, leaf));
        });
      });
      if (!moves) continue;
      moved_[p] = 1;
      rows_.EachRow(p, [&](uint32_t i) {
        rows_.EachLeafIndex(i, [&](int32_t leaf, bool target) {
          made[target ? 0 : 1].Insert(content_->ResultOf(target, leaf));
        });
      });
    }
  }

  // Asks on all threads for the counterparts that passes ask for: each answer is kept.
  void FindCounterparts() {
    constexpr size_t kChunk = 64;  // pairs; few are asked for, and they are close together
    const size_t pairs = c_.pairs.size();
    PageRelease pages(c_.target, c_.golden);
    ThreadPool::Default().ParallelFor((pairs + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t p = chunk * kChunk; p < std::min(pairs, (chunk + 1) * kChunk); ++p) {
        if (!reached_[p] || !calls_.own[p] || never_[p]) continue;
        pages.RowsDone(c_.pairs[p].row_count);
        rows_.EachRow(p, [&](uint32_t i) {
          if (!rows_.IsOpen(i)) return;
          rows_.EachLeaf(i, [&](const Leaf& leaf, bool target) {
            if (IsTensorResult(leaf) && leaf.shape.elements() != 0)
              (void)values_->HasCounterpart(leaf, target, moved_[p]);
          });
        });
      }
    });
  }

  bool Passes() {
    bool any = false;
    for (int pass = 0; pass < kMostPasses && Pass(); ++pass) any = true;
    return any;
  }

  bool NothingDiffersAs(const Sides& right) {
    right_ = right;
    return NothingDiffers();
  }

  // Whether a call of both runs makes something else of the same inputs, in the same way.
  bool AnyIntroduced() const {
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (c_.classes[p] != CallClass::kIntroduced || calls_.own[p] || IsUpdate(p)) continue;
      const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
      const bool otherwise = TakesOtherValues(p) || (forward >= 0 && TakesOtherValues(forward));
      if (!otherwise && !OnlyCarriesOn(c_, c_.pairs[p])) return true;
    }
    return false;
  }

  // Whether the calls are made with other numbers, flags or texts: reduction="sum" beside "mean". They
  // may compute the same together with other calls.
  bool TakesOtherValues(size_t p) const {
    bool other = false;
    rows_.EachRow(p, [&](uint32_t i) {
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) {
        other |= leaf.kind == LeafKind::kScalar && leaf.slot != Slot::kOutput && rows_.IsOpen(i);
      });
    });
    return other;
  }

  // An optimizer's step is behind the ends. What it makes of gradients that agree is judged later.
  bool IsUpdate(size_t p) const { return IsOptimizerCall(rows_.RecordOf(p).api); }

  // Looks for rewrites among all calls that differ, not only among those that follow a call of
  // another structure: one run may take another weight (that of an adapter, merged) and leave out
  // the calls behind it that make up for that. Every value must end well all the same.
  bool FindAmongAll() {
    if (AnyIntroduced()) return false;
    const std::vector<char> reached = std::exchange(reached_, calls_.open);
    NoneIsRight();
    leads_on_ = false;
    if (Passes() && NothingDiffers()) return true;
    reached_ = reached;
    return false;
  }

  // All gradients agree that the optimizers take, and no call of both runs makes something else of
  // the same inputs: what differs in between had no effect, wherever it lies. It may be the order of
  // elements that a sum adds up, which no call undoes, or what is computed of a part of the batch.
  bool FindBetweenEnds() {
    if (!gradients_agree_ || !c_.exact.empty() || AnyIntroduced()) return false;
    const std::vector<char> reached = std::exchange(reached_, calls_.open);
    NoneIsRight();
    between_ends_ = leads_on_ = true;
    if (Passes() && NothingDiffers()) return true;
    between_ends_ = false;
    reached_ = reached;
    return false;
  }

  // Whether all that differs has the same elements in another order, as far as statistics tell.
  bool OnlyOrderDiffers() const {
    bool any = false, all = true;
    for (size_t p = 0; p < c_.pairs.size() && all; ++p) {
      if (IsUpdate(p)) continue;
      rows_.EachRow(p, [&](uint32_t i) {
        const Row& row = c_.rows[i];
        if (c_.measures[i].verdict != RowVerdict::kDiffers) return;
        any = true;
        all = all && row.target >= 0 && row.golden >= 0 && c_.target.leaves[row.target].has_stats &&
              c_.golden.leaves[row.golden].kind == LeafKind::kTensor &&
              AgreeJoined(c_, {&c_.target.leaves[row.target]}, {&c_.golden.leaves[row.golden]});
      });
    }
    return any && all;
  }

  // Whether all that the call makes goes into the gradients that the optimizers take.
  bool IsBetweenEnds(size_t p, bool target) const {
    const Record& record =
        rows_.DumpOf(target).records[target ? c_.pairs[p].target : c_.pairs[p].golden];
    if (record.direction != Direction::kForward) return !IsOptimizerCall(record.api);
    // What ranks exchange are parts of weights and gradients (FSDP), or what other ranks compare.
    if (ExchangeOf(rows_.DumpOf(target), record)) return true;
    if (!has_backward_[p]) return false;
    // Running statistics and other memory that the call changes are read in a later step.
    bool changes = false;
    rows_.EachRow(p, [&](uint32_t i) {
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool of_target) {
        changes |= of_target == target && rows_.IsOpen(i) && IsChangedInPlace(leaf, record);
      });
    });
    return !changes;
  }

  // Something is wrong. Then what leads on through calls that are not recorded may be the reason,
  // and so may a forgiven call whose gradient is where the difference enters the backward pass.
  bool FindStrictly() {
    leads_on_ = false, strict_ = true;
    denied_.assign(c_.pairs.size(), 0);
    bool any = false;
    for (int round = 0; round < kMostPasses; ++round) {
      NoneIsRight();
      any = Passes();
      if (!DenyWrongGradients()) break;
    }
    return any;
  }

  // Denies forward calls whose backward call takes what agrees and returns what does not.
  bool DenyWrongGradients() {
    bool found = false;
    for (size_t p = 0; p < c_.forward_of.size(); ++p) {
      const int32_t forward = c_.forward_of[p];
      if (forward < 0 || denied_[forward] || !calls_.open[forward] || !IsRight(forward)) continue;
      if (!c_.pairs[p].matched() || !calls_.open[p] || calls_.own[p] || IsRight(p)) continue;
      bool takes_wrong = false, differs = false;
      rows_.EachRow(p, [&](uint32_t i) {
        if (!rows_.IsOpen(i)) return;
        rows_.EachLeaf(i, [&](const Leaf& leaf, bool) {
          takes_wrong |= IsTensorArgument(leaf);
          differs |= IsTensorResult(leaf) && c_.measures[i].verdict == RowVerdict::kDiffers;
        });
      });
      if (takes_wrong || !differs) continue;
      denied_[forward] = 1;
      found = true;
    }
    return found;
  }

  // Whether a result of a call of both runs leads on where no record shows it: numbers that differ
  // and that no recorded forward call takes (x[index] is not recorded).
  bool LeadsOnUnseen(size_t p, uint32_t row, const Leaf& leaf, bool target) const {
    if (!strict_ || !c_.pairs[p].matched() || rows_.RecordOf(p).direction != Direction::kForward ||
        c_.measures[row].verdict != RowVerdict::kDiffers ||
        RoundingOf(leaf.dtype).kind != NumberKind::kFloat)
      return false;
    const auto uses = (*flows_)[target ? 0 : 1].UsesOf(leaf);
    return std::none_of(uses.begin(), uses.end(), [&](const ValueUse& use) {
      return static_cast<size_t>(use.pair) != p &&
             rows_.RecordOf(use.pair).direction == Direction::kForward;
    });
  }

  // Whether every call of both runs that differs is part of a rewrite.
  bool NothingDiffers() const {
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!calls_.open[p] || !c_.pairs[p].matched() || (reached_[p] && IsRight(p))) continue;
      if (gradients_agree_ && IsUpdate(p)) continue;
      bool differs = false;
      rows_.EachRow(p,
                    [&](uint32_t i) { differs |= c_.measures[i].verdict == RowVerdict::kDiffers; });
      if (differs) return false;
    }
    return true;
  }

  // Backwards through the calls that are not known to be right; whether any was found to be.
  bool Pass() {
    bool found[2] = {false, false};
    const auto look = [&](size_t p, size_t side) {
      if (!reached_[p] || IsRight(p, side == 0) || !EndsWell(p, side == 0)) return;
      right_[side][p] = 1;
      found[side] = true;
    };
    if (forward_is_before_) {
      // A call asks about calls of its own run, and about its forward call in both runs. That lies
      // before it: this pass comes to it later. So each thread can go through one run.
      const Sides before = right_;
      before_ = &before;
      ThreadPool::Default().ParallelFor(2, [&](size_t side) {
        for (size_t p = c_.pairs.size(); p-- > 0;) look(p, side);
      });
      before_ = nullptr;
    } else {
      for (size_t p = c_.pairs.size(); p-- > 0;) look(p, 0), look(p, 1);
    }
    return found[0] || found[1];
  }

  void NoneIsRight() {
    for (std::vector<char>& side : right_) side.assign(c_.pairs.size(), 0);
  }
  bool IsRight(size_t p, bool target) const { return IsRightIn(right_, p, target); }
  bool IsRightIn(const Sides& sides, size_t p, bool target) const {
    return sides[target ? 0 : 1][p] != 0 || c_.IsPartOfBatch(static_cast<int32_t>(p));
  }
  // Whether a pair is right on the sides that it has.
  bool IsRight(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    const Sides& sides = before_ != nullptr ? *before_ : right_;
    return (pair.target < 0 || IsRightIn(sides, p, true)) &&
           (pair.golden < 0 || IsRightIn(sides, p, false));
  }

  // Whether a call gives other numbers to other processes: what they make of them is not in this recording.
  bool GivesOther(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    if (!pair.matched()) return false;
    const Record& record = c_.target.records[pair.target];
    const std::optional<Exchange> exchange = ExchangeOf(c_.target, record);
    if (!exchange) return false;
    bool other = false;
    rows_.EachRow(p, [&](uint32_t i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || c_.measures[i].verdict != RowVerdict::kDiffers) return;
      other |= PartOf(*exchange, record, c_.target.leaves[row.target]) == ExchangePart::kGiven;
    });
    return other;
  }

  // Whether an optimizer makes other weights, or is set otherwise. No recorded call takes what it makes.
  // The state that it takes is what an earlier step has made.
  bool UpdatesOtherwise(size_t p) const {
    bool other = false;
    if (!IsUpdate(p)) return false;
    rows_.EachRow(p, [&](uint32_t i) {
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) {
        other |= c_.measures[i].verdict == RowVerdict::kDiffers &&
                 (leaf.slot == Slot::kOutput || leaf.kind == LeafKind::kScalar);
      });
    });
    return other;
  }

  // Whether an optimizer takes a gradient that differs: the end of every way, so no rewrite.
  bool TakesOtherGradients(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    if (!pair.matched() || !IsOptimizerCall(rows_.RecordOf(p).api)) return false;
    bool other = false;
    rows_.EachRow(p, [&](uint32_t i) {
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool) {
        other |= c_.measures[i].verdict == RowVerdict::kDiffers &&
                 IsGradientOfOptimizer(rows_.RecordOf(p), leaf);
      });
    });
    return other;
  }

  enum class End : char { kRight, kWrong, kNone };

  bool EndsWell(size_t p, bool target) const {
    const int32_t record = target ? c_.pairs[p].target : c_.pairs[p].golden;
    if (record < 0 || never_[p] || (strict_ && denied_[p])) return false;
    if (between_ends_ && IsBetweenEnds(p, target)) return true;
    if (gives_other_[p]) return false;
    bool wrong = false, values = false, right = false, none = false;
    rows_.EachRow(p, [&](uint32_t i) {
      if (wrong) return;
      rows_.EachLeaf(i, [&](const Leaf& leaf, bool of_target) {
        if (of_target != target) return;
        const bool tensor = IsTensorResult(leaf);
        values |= tensor || (leaf.slot == Slot::kOutput && leaf.kind == LeafKind::kScalar);
        if (!tensor || leaf.shape.elements() == 0) return;
        const bool other_bits = moved_[p] && c_.measures[i].verdict == RowVerdict::kNoise;
        const End end = rows_.IsOpen(i) || other_bits ? EndOf(p, i, leaf, target) : End::kRight;
        wrong |= end == End::kWrong;
        right |= end == End::kRight;
        none |= end == End::kNone;
      });
    });
    // A result that nobody takes (the indices of max_pool2d) says nothing beside another one.
    if (wrong || (none && !right)) return false;
    // A call without results has changed something, unless it has raised: what, is not recorded. A
    // backward call may have none, since integers have no gradient. What x[index] = y changes is
    // seen where x is read next.
    const Record& call = rows_.DumpOf(target).records[record];
    return values || !call.exception.empty() || call.api.view().ends_with(".__setitem__") ||
           (rows_.RecordOf(p).direction == Direction::kBackward &&
            EndsInSums(p, /*one_side=*/true));
  }

  // Autograd adds up the gradients of a tensor that several calls take: the sum is in no entry. So
  // gradients that no call takes are right where the forward call is. `one_side`: only one run has
  // the gradient, because only one differentiates the argument, or the whole call: then the gradient
  // may be that of a weight, and the optimizers must say that it is not.
  bool EndsInSums(size_t p, bool one_side) const {
    const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
    if (forward >= 0 && IsRight(forward)) return true;
    if (!one_side) return false;
    if (c_.pairs[p].matched()) return forward < 0 || !calls_.open[forward];
    return forward >= 0 && !calls_.open[forward] && gradients_agree_ && !strict_;
  }

  // Whether the sums to which the results of a backward call belong agree where they are taken.
  bool SumsAgree(size_t p, bool target) const {
    const std::vector<int32_t> takers = sums_->TakersOf(static_cast<int32_t>(p), target);
    return !takers.empty() && std::all_of(takers.begin(), takers.end(), [&](int32_t taker) {
      return IsRight(taker, target) || arguments_agree_[taker];
    });
  }

  // Something is wrong, and a call of both runs takes this value where it should take another one:
  // the calls that made them ran in another order, and their results were not put back in order.
  bool LeadsToWrong(size_t p, const Leaf& leaf, bool target) const {
    if (!strict_ || !c_.pairs[p].matched()) return false;
    const auto uses = (*flows_)[target ? 0 : 1].UsesOf(leaf);
    return std::any_of(uses.begin(), uses.end(), [&](const ValueUse& use) {
      return rows_.IsOpen(use.row) && c_.pairs[use.pair].matched() && !IsRight(use.pair, target) &&
             static_cast<size_t>(use.pair) != p;
    });
  }

  End EndOf(size_t p, uint32_t row, const Leaf& leaf, bool target) const {
    if (LeadsOnUnseen(p, row, leaf, target)) return End::kWrong;
    // Integers have no rounding: where numbers agree and bits do not, elements are at other places.
    const bool bits = moved_[p] || (strict_ && RoundingOf(leaf.dtype).kind == NumberKind::kInteger);
    // Many gradients are ones or zeros: an equal one of the other run is another gradient.
    const bool backward = rows_.RecordOf(p).direction == Direction::kBackward;
    const bool elsewhere = calls_.own[p] && !(backward && IsConstant(leaf)) &&
                           values_->HasCounterpart(leaf, target, moved_[p]);
    if (elsewhere && !LeadsToWrong(p, leaf, target)) return End::kRight;
    bool used = false;
    for (const ValueUse& use : (*flows_)[target ? 0 : 1].UsesOf(leaf)) {
      if (static_cast<size_t>(use.pair) == p) continue;
      used = true;
      if (IsRight(use.pair, target)) continue;
      const RowVerdict verdict = c_.measures[use.row].verdict;
      const bool agrees = !bits || verdict == RowVerdict::kEqual || verdict == RowVerdict::kUnknown;
      if (rows_.IsOpen(use.row) || !agrees) return End::kWrong;
    }
    if (used) return End::kRight;
    // What a call leaves in memory is read in a later step, whatever this step's gradients are.
    const Record& maker = rows_.DumpOf(target).records[leaf.record];
    if (c_.measures[row].verdict == RowVerdict::kDiffers && IsChangedInPlace(leaf, maker))
      return End::kWrong;
    if (rows_.RecordOf(p).direction == Direction::kBackward) {
      const Reason reason = c_.measures[row].reason;
      const bool one_side = reason == Reason::kNoPartner || reason == Reason::kKindDiffers;
      return EndsInSums(p, one_side) || SumsAgree(p, target) ? End::kRight : End::kWrong;
    }
    // The optimizer shows a loss that no call takes, and the gradient of a part of the batch.
    const bool differentiated = has_backward_[p] || leaf.slot == Slot::kParameterGrad;
    if (gradients_agree_ && differentiated) return End::kRight;
    // Positions, masks and views lead to other values by indexing, which is not recorded.
    const NumberKind kind = RoundingOf(leaf.dtype).kind;
    const auto leaves = rows_.DumpOf(target).LeavesOf(maker);
    const bool is_place =
        kind == NumberKind::kInteger || kind == NumberKind::kBool ||
        (MovesData(maker.api) && std::any_of(leaves.begin(), leaves.end(), IsTensorArgument));
    // What a batch of another size is counted with (arange) follows from the size.
    if (is_place && any_parts_ && calls_.own[p] && c_.pairs[p].matched() &&
        std::none_of(leaves.begin(), leaves.end(), IsTensorArgument))
      return End::kRight;
    if (leads_on_ && is_place && (between_ends_ || !c_.pairs[p].matched())) return End::kRight;
    const bool right = values_->IsOnBothSides(leaf, target, moved_[p]) || EndsInModule(p, target);
    return right ? End::kRight : End::kNone;
  }

  // Of recordings of modules alone: whether the value stays inside a module whose results end well. What
  // the module makes of it is not recorded.
  bool EndsInModule(size_t p, bool target) const {
    if (!of_modules_) return false;
    const int32_t around = around_[target ? 0 : 1][p];
    return around >= 0 && (!calls_.open[around] || IsRight(around, target));
  }

  // For each pair the pair of the module's call around it, in one run.
  std::vector<int32_t> ModulesAround(bool target) const {
    const Dump& dump = rows_.DumpOf(target);
    std::unordered_map<std::string_view, int32_t> calls;
    const auto record_of = [&](size_t p) {
      return target ? c_.pairs[p].target : c_.pairs[p].golden;
    };
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (record_of(p) >= 0)
        calls.try_emplace(dump.records[record_of(p)].name.view(), static_cast<int32_t>(p));
    }
    std::vector<int32_t> around(c_.pairs.size(), -1);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (record_of(p) < 0 || dump.records[record_of(p)].parent.empty()) continue;
      const auto found = calls.find(dump.records[record_of(p)].parent.view());
      if (found != calls.end()) around[p] = found->second;
    }
    return around;
  }

  void Apply() {
    c_.rewritten.resize(c_.pairs.size(), 0);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      // Of an optimizer the state that an earlier step has rounded otherwise, if nothing comes of it.
      const bool update = IsUpdate(p) && gradients_agree_ && !UpdatesOtherwise(p);
      const bool rewrite = reached_[p] && IsRight(p);
      if (!rewrite && !update) continue;
      if (rewrite && !c_.IsCompiled(static_cast<int32_t>(p)))
        c_.rewritten[p] = Comparison::kRewrite;
      if (!c_.pairs[p].matched()) continue;
      rows_.EachRow(p, [&](uint32_t i) {
        Measure& m = c_.measures[i];
        if (m.verdict != RowVerdict::kDiffers) return;
        m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kRewritten};
      });
    }
  }

  Comparison& c_;
  const PairRows rows_;
  const OpenCalls calls_;
  const ContentIds* content_ = nullptr;
  std::vector<char> reached_, moved_, has_backward_, denied_;  // for each pair
  Sides right_;
  const Sides* before_ = nullptr;      // during a pass on two threads: right_ before it
  bool forward_is_before_ = false;     // each backward call is behind its forward call
  std::vector<char> never_;            // it takes or makes what makes it no rewrite
  std::vector<char> gives_other_;      // GivesOther
  std::vector<char> arguments_agree_;  // a backward call of both runs whose arguments agree
  bool any_parts_ = false;             // a batch is divided into another number of parts
  bool of_modules_ = false;            // no operations are recorded
  std::vector<int32_t> around_[2];     // ModulesAround, of the target, of the golden
  bool gradients_agree_ = false, leads_on_ = false, strict_ = false, between_ends_ = false;
  std::optional<ValueFlows> flows_;
  std::optional<EqualValues> values_;
  std::optional<GradientSums> sums_;
};

}  // namespace

bool ForgiveRewrites(Comparison* c) {
  if (OfTwoFrameworks(c->target, c->golden)) return false;
  return Rewrites(c).Find();
}

}  // namespace msprobe::compare
