#include "engine/compare/regions/rewrites.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/compare/judge/moving_operations.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/exchange.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/regions/equal_values.h"
#include "engine/compare/regions/gradient_sums.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {
namespace {

// How often the calls are gone through. One pass is enough, backwards, unless calls ran in another
// order, or a backward call asks for its forward call.
constexpr int kMostPasses = 8;

class Rewrites {
 public:
  explicit Rewrites(Comparison* c) : c_(*c), open_(c->pairs.size(), 0), own_(c->pairs.size(), 0) {}

  bool Find() {
    FindOpenPairs();
    if (std::none_of(own_.begin(), own_.end(), [](char own) { return own != 0; })) return false;
    // A forward call that agrees is followed, too, if the gradient of its result does not.
    std::vector<char> followed = open_;
    for (size_t p = 0; p < c_.forward_of.size(); ++p) {
      if (open_[p] && c_.forward_of[p] >= 0) followed[c_.forward_of[p]] = 1;
    }
    flows_[0].emplace(c_, true, followed);
    flows_[1].emplace(c_, false, followed);
    sums_.emplace(c_);
    FindReached();
    values_.emplace(c_, reached_);
    FindMoved();
    gradients_agree_ = GradientsAgree();
    has_backward_.assign(c_.pairs.size(), 0);
    for (const int32_t forward : c_.forward_of) {
      if (forward >= 0) has_backward_[forward] = 1;
    }
    right_.assign(c_.pairs.size(), 0);
    bool any = Passes();
    // Where something is wrong, a position or a view that leads on may be the reason.
    const std::vector<char> proven = right_;
    leads_on_ = true;
    const bool more = Passes();
    if (more && NothingDiffers()) {
      any = true;
    } else if (NothingDiffersAs(proven)) {
      right_ = proven;
    } else {
      any = FindStrictly();
    }
    if (any) Apply();
    return any;
  }

 private:
  const Dump& DumpOf(bool target) const { return target ? c_.target : c_.golden; }

  // Whether the two sides of a row do not agree, or there is only one.
  bool IsOpen(uint32_t row) const {
    return c_.rows[row].target < 0 || c_.rows[row].golden < 0 ||
           c_.measures[row].verdict == RowVerdict::kDiffers;
  }
  template <typename Use>
  void EachRow(size_t p, Use use) const {
    const RecordPair& pair = c_.pairs[p];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) use(i);
  }
  // Calls use(leaf, is_target) for the leaves of a row.
  template <typename Use>
  void EachLeaf(uint32_t row, Use use) const {
    if (c_.rows[row].target >= 0) use(c_.target.leaves[c_.rows[row].target], true);
    if (c_.rows[row].golden >= 0) use(c_.golden.leaves[c_.rows[row].golden], false);
  }
  const Record& RecordOf(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    return pair.target >= 0 ? c_.target.records[pair.target] : c_.golden.records[pair.golden];
  }

  // Whether the two calls of a pair do different things: other operations, or the same one with
  // tensors of other shapes and kinds.
  bool IsOtherCall(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    const Record &t = c_.target.records[pair.target], &g = c_.golden.records[pair.golden];
    if (!t.is_module && BaseApi(t.api) != BaseApi(g.api)) return true;
    const bool moves = t.direction == Direction::kForward && MovesData(t.api);
    bool other = false;
    EachRow(p, [&](uint32_t i) {
      if (!IsOpen(i)) return;
      const Reason reason = c_.measures[i].reason;
      const bool one_side = reason == Reason::kKindDiffers || reason == Reason::kNoPartner;
      EachLeaf(i, [&](const Leaf& leaf, bool) {
        if (leaf.kind != LeafKind::kTensor) return;
        // Whether a batch is divided into another number of parts.
        const bool other_parts = moves && reason == Reason::kNoPartner;
        other |= IsTensorArgument(leaf)
                     ? one_side || reason == Reason::kShapeDiffers
                     : other_parts || (one_side && t.direction == Direction::kBackward);
      });
    });
    return other;
  }

  // open_: a row of the pair does not agree. own_: the calls themselves differ.
  void FindOpenPairs() {
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!c_.pairs[p].matched()) {
        open_[p] = own_[p] = 1;
        continue;
      }
      EachRow(p, [&](uint32_t i) { open_[p] |= IsOpen(i); });
      if (open_[p]) own_[p] = IsOtherCall(p);
    }
    FindReordered();
  }

  // 0: the leaf is no argument, or has no numbers.
  static uint64_t ArgumentKey(const Leaf& leaf) {
    if (IsTensorArgument(leaf)) return ContentKey(leaf);
    const bool plain =
        leaf.kind == LeafKind::kScalar && (leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg);
    return plain ? HashText(leaf.value, 5) : 0;
  }

  // Calls of one operation that ran in another order: what the one takes in the target, another one
  // takes in the golden.
  void FindReordered() {
    FingerprintSet taken[2];
    const auto each_wrong_argument = [&](auto use) {
      for (size_t p = 0; p < c_.pairs.size(); ++p) {
        if (!open_[p] || own_[p]) continue;
        EachRow(p, [&](uint32_t i) {
          // Two masks may have equally many elements that are true.
          if (IsOpen(i) || c_.measures[i].reason == Reason::kOtherBits) {
            EachLeaf(i, [&](const Leaf& leaf, bool target) {
              const uint64_t key = ArgumentKey(leaf);
              if (key != 0)
                use(p, HashText(RecordOf(p).is_module ? "" : BaseApi(RecordOf(p).api), key),
                    target);
            });
          }
        });
      }
    };
    each_wrong_argument(
        [&](size_t, uint64_t key, bool target) { taken[target ? 0 : 1].InsertHash(key); });
    std::vector<char> crossed(c_.pairs.size(), 0);
    each_wrong_argument([&](size_t p, uint64_t key, bool target) {
      if (taken[target ? 1 : 0].HasHash(key)) crossed[p] |= target ? 1 : 2;
    });
    for (size_t p = 0; p < c_.pairs.size(); ++p) own_[p] |= crossed[p] == 3;
    FindMovedCalls();
  }

  // Calls that ran before a call in the one run and behind it in the other.
  void FindMovedCalls() {
    int32_t last = -1;  // the largest golden record so far
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!c_.pairs[p].matched()) continue;
      if (open_[p]) own_[p] |= c_.pairs[p].golden < last;
      last = std::max(last, c_.pairs[p].golden);
    }
    int32_t first = INT32_MAX;  // the smallest golden record from here on
    for (size_t p = c_.pairs.size(); p-- > 0;) {
      if (!c_.pairs[p].matched()) continue;
      if (open_[p]) own_[p] |= c_.pairs[p].golden > first;
      first = std::min(first, c_.pairs[p].golden);
    }
  }

  // reached_: the calls differ, or take what such calls made, or hold such calls.
  void FindReached() {
    reached_ = own_;
    std::vector<char> values[2] = {std::vector<char>(flows_[0]->size(), 0),
                                   std::vector<char>(flows_[1]->size(), 0)};
    std::unordered_set<std::string_view> modules;  // calls of modules that hold such calls
    std::unordered_set<std::string_view> apis;     // modules that such calls are of
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!open_[p]) continue;
      char& reached = reached_[p];
      const RecordPair& pair = c_.pairs[p];
      const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
      if (forward >= 0 && static_cast<size_t>(forward) < p)
        reached |= reached_[forward] || IsTakenByReached(forward);
      if (RecordOf(p).direction == Direction::kParameterGrad)
        reached |= apis.count(RecordOf(p).api) > 0;
      if (RecordOf(p).is_module) {
        reached |= pair.target >= 0 && modules.count(c_.target.records[pair.target].name) > 0;
        reached |= pair.golden >= 0 && modules.count(c_.golden.records[pair.golden].name) > 0;
      }
      EachRow(p, [&](uint32_t i) {
        if (!IsOpen(i)) return;
        EachLeaf(i, [&](const Leaf& leaf, bool target) {
          const int side = target ? 0 : 1;
          const int32_t value = IsTensorArgument(leaf) ? flows_[side]->ValueOf(leaf) : -1;
          if (value >= 0) reached |= values[side][value];
        });
      });
      if (!reached) continue;
      if (RecordOf(p).is_module) apis.insert(RecordOf(p).api);
      if (pair.target >= 0) modules.insert(c_.target.records[pair.target].parent);
      if (pair.golden >= 0) modules.insert(c_.golden.records[pair.golden].parent);
      EachRow(p, [&](uint32_t i) {
        EachLeaf(i, [&](const Leaf& leaf, bool target) {
          const int side = target ? 0 : 1;
          const int32_t value = IsTensorResult(leaf) ? flows_[side]->ValueOf(leaf) : -1;
          if (value >= 0) values[side][value] = 1;
        });
      });
    }
  }

  // Whether a call that is reached takes a result of `p`: then the gradient of the result has other
  // parts in the other run.
  bool IsTakenByReached(size_t p) const {
    bool taken = false;
    EachRow(p, [&](uint32_t i) {
      EachLeaf(i, [&](const Leaf& leaf, bool target) {
        if (taken || !IsTensorResult(leaf)) return;
        for (const ValueUse& use : flows_[target ? 0 : 1]->UsesOf(leaf))
          taken |= RecordOf(use.pair).direction == Direction::kForward && reached_[use.pair];
      });
    });
    return taken;
  }

  // moved_: the call only moves elements of tensors that are equal bit for bit in both runs. Then
  // its results must be equal bit for bit, too: their statistics do not tell another order.
  void FindMoved() {
    moved_.assign(c_.pairs.size(), 0);
    FingerprintSet made[2];  // results of such calls
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!own_[p] || RecordOf(p).direction != Direction::kForward) continue;
      const RecordPair& pair = c_.pairs[p];
      bool moves = !RecordOf(p).is_module;
      if (pair.target >= 0) moves = moves && MovesData(c_.target.records[pair.target].api);
      if (pair.golden >= 0) moves = moves && MovesData(c_.golden.records[pair.golden].api);
      EachRow(p, [&](uint32_t i) {
        EachLeaf(i, [&](const Leaf& leaf, bool target) {
          if (!moves || !IsTensorArgument(leaf)) return;
          const uint64_t key = ContentKey(leaf);
          moves = values_->IsOnBothSides(leaf, target, /*bits=*/true) ||
                  (key != 0 && made[target ? 0 : 1].HasHash(key));
        });
      });
      if (!moves) continue;
      moved_[p] = 1;
      EachRow(p, [&](uint32_t i) {
        EachLeaf(i, [&](const Leaf& leaf, bool target) {
          const uint64_t key = IsTensorResult(leaf) ? ContentKey(leaf) : 0;
          if (key != 0) made[target ? 0 : 1].InsertHash(key);
        });
      });
    }
  }

  bool Passes() {
    bool any = false;
    for (int pass = 0; pass < kMostPasses && Pass(); ++pass) any = true;
    return any;
  }

  bool NothingDiffersAs(const std::vector<char>& right) {
    right_ = right;
    return NothingDiffers();
  }

  // Something is wrong. Then what leads on through calls that are not recorded may be the reason,
  // and so may a forgiven call whose gradient is where the difference enters the backward pass.
  bool FindStrictly() {
    leads_on_ = false, strict_ = true;
    denied_.assign(c_.pairs.size(), 0);
    bool any = false;
    for (int round = 0; round < kMostPasses; ++round) {
      right_.assign(c_.pairs.size(), 0);
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
      if (forward < 0 || denied_[forward] || !open_[forward] || !IsRight(forward)) continue;
      if (!c_.pairs[p].matched() || !open_[p] || own_[p] || IsRight(p)) continue;
      bool takes_wrong = false, differs = false;
      EachRow(p, [&](uint32_t i) {
        if (!IsOpen(i)) return;
        EachLeaf(i, [&](const Leaf& leaf, bool) {
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
    if (!strict_ || !c_.pairs[p].matched() || RecordOf(p).direction != Direction::kForward ||
        c_.measures[row].verdict != RowVerdict::kDiffers ||
        RoundingOf(leaf.dtype).kind != NumberKind::kFloat)
      return false;
    const auto uses = flows_[target ? 0 : 1]->UsesOf(leaf);
    return std::none_of(uses.begin(), uses.end(), [&](const ValueUse& use) {
      return static_cast<size_t>(use.pair) != p &&
             RecordOf(use.pair).direction == Direction::kForward;
    });
  }

  // Whether every call of both runs that differs is part of a rewrite.
  bool NothingDiffers() const {
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!open_[p] || !c_.pairs[p].matched() || (reached_[p] && IsRight(p))) continue;
      bool differs = false;
      EachRow(p, [&](uint32_t i) { differs |= c_.measures[i].verdict == RowVerdict::kDiffers; });
      if (differs) return false;
    }
    return true;
  }

  // Backwards through the calls that are not known to be right; whether any was found to be.
  bool Pass() {
    bool found = false;
    for (size_t p = c_.pairs.size(); p-- > 0;) {
      if (!reached_[p]) continue;
      for (const bool target : {true, false}) {
        if (IsRight(p, target) || !EndsWell(p, target)) continue;
        right_[p] |= SideOf(target);
        found = true;
      }
    }
    return found;
  }

  // Each side of a pair for itself: two calls may be in one order in the target and in the other in
  // the golden, so that the target's first needs the golden's second and the other way round.
  static char SideOf(bool target) { return target ? 1 : 2; }
  bool IsRight(size_t p, bool target) const { return (right_[p] & SideOf(target)) != 0; }
  // Whether a pair is right on the sides that it has.
  bool IsRight(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    return (pair.target < 0 || IsRight(p, true)) && (pair.golden < 0 || IsRight(p, false));
  }

  // Whether all gradients agree that the optimizers of this step take.
  bool GradientsAgree() const {
    bool any = false, all = true;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!IsOptimizerCall(RecordOf(p).api)) continue;
      EachRow(p, [&](uint32_t i) {
        EachLeaf(i, [&](const Leaf& leaf, bool) {
          if (!IsGradientOfOptimizer(RecordOf(p), leaf)) return;
          any = true;
          all = all && !IsOpen(i);
        });
      });
    }
    return any && all;
  }

  // Whether a call gives other numbers to other processes: what they make of them is not in this recording.
  bool GivesOther(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    if (!pair.matched()) return false;
    const Record& record = c_.target.records[pair.target];
    const std::optional<Exchange> exchange = ExchangeOf(c_.target, record);
    if (!exchange) return false;
    bool other = false;
    EachRow(p, [&](uint32_t i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || c_.measures[i].verdict != RowVerdict::kDiffers) return;
      other |= PartOf(*exchange, record, c_.target.leaves[row.target]) == ExchangePart::kGiven;
    });
    return other;
  }

  // Whether an optimizer takes a gradient that differs: the end of every way, so no rewrite.
  bool TakesOtherGradients(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    if (!pair.matched() || !IsOptimizerCall(RecordOf(p).api)) return false;
    bool other = false;
    EachRow(p, [&](uint32_t i) {
      EachLeaf(i, [&](const Leaf& leaf, bool) {
        other |= c_.measures[i].verdict == RowVerdict::kDiffers &&
                 IsGradientOfOptimizer(RecordOf(p), leaf);
      });
    });
    return other;
  }

  enum class End : char { kRight, kWrong, kNone };

  bool EndsWell(size_t p, bool target) const {
    const int32_t record = target ? c_.pairs[p].target : c_.pairs[p].golden;
    if (record < 0 || (strict_ && denied_[p]) || GivesOther(p) || TakesOtherGradients(p))
      return false;
    bool wrong = false, values = false, right = false, none = false;
    EachRow(p, [&](uint32_t i) {
      if (wrong) return;
      EachLeaf(i, [&](const Leaf& leaf, bool of_target) {
        if (of_target != target) return;
        const bool tensor = IsTensorResult(leaf);
        values |= tensor || (leaf.slot == Slot::kOutput && leaf.kind == LeafKind::kScalar);
        if (!tensor || leaf.shape.elements() == 0) return;
        const bool other_bits = moved_[p] && c_.measures[i].verdict == RowVerdict::kNoise;
        const End end = IsOpen(i) || other_bits ? EndOf(p, i, leaf, target) : End::kRight;
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
    const Record& call = DumpOf(target).records[record];
    return values || !call.exception.empty() || call.api.view().ends_with(".__setitem__") ||
           (RecordOf(p).direction == Direction::kBackward && EndsInSums(p, /*one_side=*/true));
  }

  // Autograd adds up the gradients of a tensor that several calls take: the sum is in no entry. So
  // gradients that no call takes are right where the forward call is. `one_side`: only one run has
  // the gradient, because only one differentiates the argument.
  bool EndsInSums(size_t p, bool one_side) const {
    const int32_t forward = p < c_.forward_of.size() ? c_.forward_of[p] : -1;
    if (forward >= 0 && IsRight(forward)) return true;
    return one_side && c_.pairs[p].matched() && (forward < 0 || !open_[forward]);
  }

  // Whether the sums to which the results of a backward call belong agree where they are taken.
  bool SumsAgree(size_t p, bool target) const {
    const std::vector<int32_t> takers = sums_->TakersOf(static_cast<int32_t>(p), target);
    return !takers.empty() && std::all_of(takers.begin(), takers.end(), [&](int32_t taker) {
      if (IsRight(taker, target)) return true;
      bool agree = c_.pairs[taker].matched();
      EachRow(taker, [&](uint32_t i) {
        EachLeaf(i,
                 [&](const Leaf& leaf, bool) { agree &= !IsTensorArgument(leaf) || !IsOpen(i); });
      });
      return agree;
    });
  }

  // Something is wrong, and a call of both runs takes this value where it should take another one:
  // the calls that made them ran in another order, and their results were not put back in order.
  bool LeadsToWrong(size_t p, const Leaf& leaf, bool target) const {
    if (!strict_ || !c_.pairs[p].matched()) return false;
    const auto uses = flows_[target ? 0 : 1]->UsesOf(leaf);
    return std::any_of(uses.begin(), uses.end(), [&](const ValueUse& use) {
      return IsOpen(use.row) && c_.pairs[use.pair].matched() && !IsRight(use.pair, target) &&
             static_cast<size_t>(use.pair) != p;
    });
  }

  End EndOf(size_t p, uint32_t row, const Leaf& leaf, bool target) const {
    if (LeadsOnUnseen(p, row, leaf, target)) return End::kWrong;
    // Integers have no rounding: where numbers agree and bits do not, elements are at other places.
    const bool bits = moved_[p] || (strict_ && RoundingOf(leaf.dtype).kind == NumberKind::kInteger);
    const bool elsewhere = own_[p] && values_->HasCounterpart(leaf, target, moved_[p]);
    if (elsewhere && !LeadsToWrong(p, leaf, target)) return End::kRight;
    bool used = false;
    for (const ValueUse& use : flows_[target ? 0 : 1]->UsesOf(leaf)) {
      if (static_cast<size_t>(use.pair) == p) continue;
      used = true;
      if (IsRight(use.pair, target)) continue;
      const bool agrees = bits ? c_.measures[use.row].verdict == RowVerdict::kEqual ||
                                     c_.measures[use.row].verdict == RowVerdict::kUnknown
                               : true;
      if (IsOpen(use.row) || !agrees) return End::kWrong;
    }
    if (used) return End::kRight;
    if (RecordOf(p).direction == Direction::kBackward) {
      const Reason reason = c_.measures[row].reason;
      const bool one_side = reason == Reason::kNoPartner || reason == Reason::kKindDiffers;
      return EndsInSums(p, one_side) || SumsAgree(p, target) ? End::kRight : End::kWrong;
    }
    // A loss that no call takes, and a parameter's gradient from a part of the batch, are seen in
    // what the optimizer takes.
    const bool differentiated = has_backward_[p] || leaf.slot == Slot::kParameterGrad;
    if (gradients_agree_ && differentiated) return End::kRight;
    // Positions, masks and views lead to other values through calls that are not recorded, such as
    // indexing.
    const NumberKind kind = RoundingOf(leaf.dtype).kind;
    const Record& call = DumpOf(target).records[leaf.record];
    const auto leaves = DumpOf(target).LeavesOf(call);
    const bool is_place =
        kind == NumberKind::kInteger || kind == NumberKind::kBool ||
        (MovesData(call.api) && std::any_of(leaves.begin(), leaves.end(), IsTensorArgument));
    if (leads_on_ && is_place && !c_.pairs[p].matched()) return End::kRight;
    return values_->IsOnBothSides(leaf, target, moved_[p]) ? End::kRight : End::kNone;
  }

  void Apply() {
    c_.rewritten.resize(c_.pairs.size(), 0);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!reached_[p] || !IsRight(p)) continue;
      c_.rewritten[p] = 1;
      if (!c_.pairs[p].matched()) continue;
      EachRow(p, [&](uint32_t i) {
        Measure& m = c_.measures[i];
        if (m.verdict != RowVerdict::kDiffers) return;
        m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kRewritten};
      });
    }
  }

  Comparison& c_;
  std::vector<char> open_, own_, reached_, moved_, right_, has_backward_, denied_;  // for each pair
  bool gradients_agree_ = false, leads_on_ = false, strict_ = false;
  std::optional<ValueFlow> flows_[2];  // of the target, of the golden
  std::optional<EqualValues> values_;
  std::optional<GradientSums> sums_;
};

}  // namespace

bool ForgiveRewrites(Comparison* c) {
  if (OfTwoFrameworks(c->target, c->golden)) return false;
  return Rewrites(c).Find();
}

}  // namespace msprobe::compare
