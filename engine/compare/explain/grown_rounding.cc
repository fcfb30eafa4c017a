#include "engine/compare/explain/grown_rounding.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/carried.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/judge/update_agreement.h"
#include "engine/compare/judge/zero_gradients.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

// How many times the rounding before it one call may show. Statistics average the errors of the
// elements: what they show of an input is less than what some elements have.
constexpr double kGrowth = 8, kAmplification = 32, kUpdateAmplification = 100;
// The largest relative difference that is forgiven: this, or so many times what is explained. Any
// for an update in place whose result no call uses: an optimizer divides each gradient by its own
// size, so a gradient that is zero apart from rounding gives a large result.
constexpr double kLargest = 0x1p-10, kLargestFactor = 4;
// Weights in the entry of an optimizer's call.
constexpr std::string_view kWeightsBefore = "input.weights.", kWeightsAfter = "output.0.weights.",
                           kGradients = "input.gradients.";

class GrownRounding {
 public:
  // `passed_on`: some call has an input that differs.
  GrownRounding(Comparison* c, bool passed_on) : c_(*c), passed_on_(passed_on) {}

  // False: the call is wrong by more than what grew.
  bool Pass(int32_t pair) {
    if (!c_.pairs[pair].matched()) return true;
    const Record& record = RecordOf(c_, pair);
    if (!PassInputs(pair, record)) return false;
    if (IsOptimizerCall(record.api)) {
      carried_ = 0;  // what cancelled in one weight says nothing of the others
      if (HasNoise(pair)) {
        const std::unordered_set<std::string_view> by_chance = MovedByChance(pair);
        if (UpdatesAlike(pair, by_chance)) return Forgive(pair);
        ForgiveWeights(pair, by_chance);
      }
    }
    return PassResults(pair, record);
  }

  // False: nothing is forgiven.
  bool Apply() {
    for (const uint32_t row : forgiven_) {
      c_.measures[row].verdict = RowVerdict::kNoise;
      c_.measures[row].reason = Reason::kEnlarged;
      // Roundings of its own size say nothing of what cancelled before.
      if (carried_rows_.count(KeyOf(row)) > 0) c_.measures[row].severity = kernels::Diff::kNaN;
    }
    return !forgiven_.empty();
  }

 private:
  template <typename Use>
  bool EachRow(int32_t pair, bool results, Use use) {
    const RecordPair& p = c_.pairs[pair];
    for (uint32_t i = p.first_row; i < p.first_row + p.row_count; ++i) {
      const Row& row = c_.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      if ((c_.target.leaves[row.target].slot == Slot::kOutput) != results) continue;
      if (!use(i, c_.measures[i])) return false;
    }
    return true;
  }

  // Tensors that go in. A parameter's gradient goes in, too: it is what an earlier call made.
  bool PassInputs(int32_t pair, const Record& record) {
    const bool gradients = record.direction == Direction::kParameterGrad;
    taken_ = carried_ = 0;
    return EachRow(pair, /*results=*/false, [&](uint32_t i, const Measure& m) {
      if (m.verdict == RowVerdict::kNoise) Note(i, m.severity);
      // The weights that an optimizer has moved alike, taken by a call behind it.
      const bool again = m.verdict == RowVerdict::kDiffers && IsForgivenTensor(i);
      if (again) forgiven_.insert(i);
      const bool carried = again && carried_rows_.count(KeyOf(i)) > 0;
      carried_ = std::max(carried_, carried ? ApartOf(c_, i) : CarriedBy(c_, i));
      if (carried) return true;
      if (m.verdict == RowVerdict::kDiffers && !again &&
          !ForgiveRow(i, gradients ? kAmplification : kGrowth))
        return false;
      if (m.verdict != RowVerdict::kEqual && std::isfinite(m.severity))
        taken_ = std::max(taken_, m.severity);
      return true;
    });
  }

  bool PassResults(int32_t pair, const Record& record) {
    std::optional<bool> noise;   // found out for the first row that differs: most calls have none
    const auto can_grow = [&] {  // calls inside a module made noise
      if (!noise) noise = record.is_module || HasNoise(pair);
      return *noise;
    };
    const bool amplifies = AmplifiesRounding(record.api) || record.is_module;
    const double growth = !amplifies                   ? kGrowth
                          : UpdatesInPlace(record.api) ? kUpdateAmplification
                                                       : kAmplification;
    return EachRow(pair, /*results=*/true, [&](uint32_t i, const Measure& m) {
      if (m.verdict == RowVerdict::kNoise) Note(i, m.severity);
      return m.verdict != RowVerdict::kDiffers || forgiven_.count(i) > 0 ||
             (can_grow() && ForgiveRow(i, growth)) || CarryOn(i);
    });
  }

  // Whether something that goes into the call is noise. A backward call uses what its forward call
  // used.
  bool HasNoise(int32_t pair) {
    const int32_t forward = c_.forward_of.empty() ? -1 : c_.forward_of[pair];
    const auto noise = [&](int32_t p) {
      return p >= 0 && !EachRow(p, /*results=*/false, [&](uint32_t i, const Measure& m) {
               return m.verdict != RowVerdict::kNoise && forgiven_.count(i) == 0;
             });
    };
    return noise(pair) || noise(forward);
  }

  // Weights of an optimizer's call whose gradients are zero by mathematics.
  std::unordered_set<std::string_view> MovedByChance(int32_t pair) {
    std::unordered_set<std::string_view> by_chance;
    EachRow(pair, /*results=*/false, [&](uint32_t i, const Measure&) {
      const std::string_view path = LeafPath(c_, static_cast<int32_t>(i));
      if (path.starts_with(kGradients) && IsZeroGradient(c_, c_.pairs[pair], i))
        by_chance.insert(path.substr(kGradients.size()));
      return true;
    });
    return by_chance;
  }

  // Forgives these weights behind the step.
  void ForgiveWeights(int32_t pair, const std::unordered_set<std::string_view>& names) {
    if (names.empty()) return;
    EachRow(pair, /*results=*/true, [&](uint32_t i, const Measure& m) {
      const std::string_view path = LeafPath(c_, static_cast<int32_t>(i));
      if (m.verdict != RowVerdict::kDiffers || !IsRounding(i) || !path.starts_with(kWeightsAfter) ||
          !names.contains(path.substr(kWeightsAfter.size())))
        return true;
      forgiven_.insert(i);
      tensors_.insert(KeyOf(i));
      return true;
    });
  }

  // Whether the weights of an optimizer's call move alike in both runs, but for those that move by
  // chance.
  bool UpdatesAlike(int32_t pair, const std::unordered_set<std::string_view>& by_chance) {
    std::unordered_map<std::string_view, uint32_t> before;
    EachRow(pair, /*results=*/false, [&](uint32_t i, const Measure&) {
      const std::string_view path = LeafPath(c_, static_cast<int32_t>(i));
      if (path.starts_with(kWeightsBefore)) before[path.substr(kWeightsBefore.size())] = i;
      return true;
    });
    UpdateAgreement updates;
    EachRow(pair, /*results=*/true, [&](uint32_t i, const Measure&) {
      const std::string_view path = LeafPath(c_, static_cast<int32_t>(i));
      if (!path.starts_with(kWeightsAfter)) return true;
      const auto found = before.find(path.substr(kWeightsAfter.size()));
      if (found == before.end() || by_chance.contains(found->first)) return true;
      const Row &was = c_.rows[found->second], &now = c_.rows[i];
      uint8_t count = 0;
      for (const auto statistic : {&Leaf::norm_value, &Leaf::max_value, &Leaf::min_value}) {
        updates.Add({.before = {c_.target.leaves[was.target].*statistic,
                                c_.golden.leaves[was.golden].*statistic},
                     .after = {c_.target.leaves[now.target].*statistic,
                               c_.golden.leaves[now.golden].*statistic},
                     .epsilon = RoundingOfRow(c_, static_cast<int32_t>(i)).epsilon,
                     .weight = i,
                     .statistic = count++});
      }
      return true;
    });
    return updates.agrees();
  }

  // Forgives all results of an optimizer's call; of its state what is off by a thousandth.
  bool Forgive(int32_t pair) {
    return EachRow(pair, /*results=*/true, [&](uint32_t i, const Measure& m) {
      if (m.verdict != RowVerdict::kDiffers) return true;
      const bool weight = LeafPath(c_, static_cast<int32_t>(i)).starts_with(kWeightsAfter);
      if (!IsRounding(i) || (!weight && IsTooLarge(i))) return false;
      forgiven_.insert(i);
      tensors_.insert(KeyOf(i));
      return true;
    });
  }

  // The two tensors of a row, wherever they appear.
  uint64_t KeyOf(uint32_t i) const {
    const Row& row = c_.rows[i];
    constexpr uint64_t kOther = 0x9e3779b97f4a7c15;  // the two sides must not cancel each other
    return ContentKey(c_.target.leaves[row.target]) ^
           (ContentKey(c_.golden.leaves[row.golden]) * kOther);
  }
  bool IsForgivenTensor(uint32_t i) const {
    return !tensors_.empty() && IsRounding(i) && tensors_.count(KeyOf(i)) > 0;
  }

  // A result that is as far apart as a value that cancelled before.
  bool CarryOn(uint32_t i) {
    if (!IsRounding(i) || !IsCarriedOn(c_, i, carried_)) return false;
    forgiven_.insert(i);
    tensors_.insert(KeyOf(i));
    carried_rows_.insert(KeyOf(i));
    return true;
  }

  bool ForgiveRow(uint32_t i, double growth) {
    if (!IsRounding(i) || !Grew(i, growth)) return false;
    forgiven_.insert(i);
    Note(i, c_.measures[i].severity);
    return true;
  }

  bool IsRounding(uint32_t i) const {
    const Row& row = c_.rows[i];
    const Measure& m = c_.measures[i];
    const bool tensors = c_.target.leaves[row.target].kind == LeafKind::kTensor &&
                         c_.golden.leaves[row.golden].kind == LeafKind::kTensor;
    const bool by_size = m.reason == Reason::kNone || m.reason == Reason::kDTypeDiffers ||
                         m.reason == Reason::kCoarserBefore;
    return tensors && by_size && std::isfinite(m.severity);
  }

  bool Grew(uint32_t i, double growth) const {
    const Rounding r = RoundingOfRow(c_, static_cast<int32_t>(i));
    const auto found = largest_.find(r.epsilon);
    if (found == largest_.end() && taken_ == 0) return false;
    const double before = std::max(taken_, found == largest_.end() ? 0 : found->second);
    const double severity = c_.measures[i].severity;
    const bool any_size = growth == kUpdateAmplification && !passed_on_;
    return severity <= growth * std::max(before, ScaleOf(i, r)) && (any_size || !IsTooLarge(i));
  }

  double ScaleOf(uint32_t i, const Rounding& r) const {
    const Record& made = c_.golden.records[c_.golden.leaves[c_.rows[i].golden].record];
    return Limits(c_, made.api).Scale(r);
  }
  bool IsTooLarge(uint32_t i) const {
    const Rounding r = RoundingOfRow(c_, static_cast<int32_t>(i));
    const double explained = ExplainedFor(c_, static_cast<int32_t>(i)) * r.epsilon;
    const double largest = std::max(kLargest * ScaleOf(i, r), kLargestFactor * explained);
    return c_.measures[i].severity * r.epsilon > largest;
  }

  void Note(uint32_t i, double severity) {
    if (!std::isfinite(severity)) return;
    double& largest = largest_[RoundingOfRow(c_, static_cast<int32_t>(i)).epsilon];
    largest = std::max(largest, severity);
  }

  Comparison& c_;
  const bool passed_on_;
  std::map<double, double> largest_;  // epsilon of a dtype -> roundings of it, so far
  double taken_ = 0;                  // roundings of what the call at hand takes, the largest
  // The largest relative difference of a tensor that the call at hand takes and that is noise.
  double carried_ = 0;
  std::unordered_set<uint32_t> forgiven_;
  // KeyOf results that are forgiven wherever they appear: those of optimizers, and those that carry
  // on what cancelled before.
  std::unordered_set<uint64_t> tensors_, carried_rows_;
};

}  // namespace

bool ForgiveGrownRounding(Comparison* c) {
  const auto any = [&](CallClass wanted) {
    return std::find(c->classes.begin(), c->classes.end(), wanted) != c->classes.end();
  };
  const bool passed_on = any(CallClass::kInherited);
  if (!c->exact.empty() || (!passed_on && !any(CallClass::kIntroduced))) return false;
  GrownRounding grown(c, passed_on);
  for (size_t p = 0; p < c->pairs.size(); ++p) {
    const int32_t pair = static_cast<int32_t>(p);
    const bool made_differently =
        c->classes[p] == CallClass::kIntroduced && SummarizeCall(*c, pair).arguments.differs;
    if (made_differently || !grown.Pass(pair)) break;
  }
  return grown.Apply();
}

}  // namespace msprobe::compare
