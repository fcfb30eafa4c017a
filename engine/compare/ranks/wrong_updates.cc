#include "engine/compare/ranks/wrong_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_map>

#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/judge/update_agreement.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "engine/dump/read/weights_file.h"

namespace msprobe::compare {
namespace {

// Whether relations explain how a weight differs when the step begins. A buffer that no recorded
// call takes has no relation, and no weight has one where no call is recorded with its weights
// (compiled code of MindSpore).
bool IsRelated(const StepWeights& weights, const std::string& name, bool trained) {
  if (!weights.unrelated || (weights.unrelated->empty() && weights.related->empty())) return false;
  return trained ? std::ranges::find(*weights.unrelated, name) == weights.unrelated->end()
                 : std::ranges::find(*weights.related, name) != weights.related->end();
}

constexpr double kConfidence = 0.95;

Message AdviceOnUpdates() {
  return "compare what runs between the steps: the optimizer with its parameter groups, clipping, "
         "schedules, the exchange of gradients, code that writes weights or buffers"_t;
}

// Roundings by which two optimizers may put a weight apart in one step of bit-equal gradients
// (fused against one call for each operation): what they add is small beside the weight.
constexpr double kOneUpdate = 8;

using WeightsByName = std::unordered_map<std::string, StepWeight>;

// A whole number counts calls (num_batches_tracked): who reads it shows whether it is wrong.
bool IsCounter(const StepWeight& weight) {
  return !weight.trained && weight.shape && weight.shape->empty() &&
         weight.dtype.starts_with("torch.int");
}

// Weights of a file that cannot be read are not known: the comparison does not need them.
WeightsByName WeightsOf(const RankResult& result, bool target,
                        std::vector<std::string>* order = nullptr) {
  std::vector<StepWeight> list = target ? result.target_weights : result.golden_weights;
  const std::string& folder = target ? result.target : result.golden;
  if (list.empty() && !dump::ReadStepWeights(folder, &list).ok()) list.clear();
  WeightsByName weights;
  for (StepWeight& weight : list) {
    if (order != nullptr) order->push_back(weight.name);
    weights.try_emplace(weight.name, std::move(weight));
  }
  return weights;
}

// Gives the weights of MindSpore the names of PyTorch's program.
void RenameWeights(const WeightsByName& pytorch, WeightsByName* mindspore,
                   std::vector<std::string>* order) {
  WeightsByName renamed;
  const auto name_of = [&](const std::string& name) {
    return PyTorchWeightOf(name,
                           [&](std::string_view n) { return pytorch.contains(std::string(n)); });
  };
  for (auto& [name, weight] : *mindspore) renamed.try_emplace(name_of(name), std::move(weight));
  for (std::string& name : *order) name = name_of(name);
  *mindspore = std::move(renamed);
}

bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// `bits`: equal bits are asked for. `one_update`: no more than the rounding of one update.
bool Differs(const Limits& limits, const StepWeight& a, const StepWeight& b, bool bits,
             bool one_update) {
  const bool prints = !a.fingerprint.empty() && !b.fingerprint.empty();
  if (prints && a.fingerprint == b.fingerprint) return false;
  if (prints && bits) return true;
  const Rounding& rounding = CoarserRounding(a.dtype, b.dtype);
  const double explained = limits.Explained(rounding);
  const double update = kOneUpdate * limits.Scale(rounding);
  const double limit = (one_update ? std::min(update, explained) : explained) * rounding.epsilon;
  const double scale =
      std::max({std::abs(a.max), std::abs(a.min), std::abs(b.max), std::abs(b.min)});
  const auto apart = [&](double x, double y, double size) {
    return !SameNumber(x, y) && !(std::abs(x - y) <= limit * size);
  };
  const double norm = std::max(std::abs(a.norm), std::abs(b.norm));
  // Sketches know the order of elements; an error shows in them as up to eight times its size. An
  // optimizer that divides a gradient by its own size enlarges the rounding of single elements.
  const auto other_elements = [&] {
    constexpr double kInSketch = 8;
    const double most = kInSketch * limit * norm;
    return !(std::abs(a.sketch->rows - b.sketch->rows) <= most &&
             std::abs(a.sketch->wave - b.sketch->wave) <= most);
  };
  return apart(a.max, b.max, scale) || apart(a.min, b.min, scale) || apart(a.norm, b.norm, norm) ||
         (!a.trained && !b.trained && a.sketch && b.sketch && std::isfinite(norm) &&
          other_elements());
}

// The update moved the weights of both runs alike, in the median: rounding that an optimizer has
// enlarged (update_agreement.h).
UpdateAgreement AgreementOf(const std::vector<WeightUpdate>& updates) {
  UpdateAgreement agreement;
  uint32_t weight = 0;
  for (const WeightUpdate& update : updates) {
    ++weight;
    if (!update.trained || update.by_chance) continue;
    const auto add = [&](uint8_t statistic, BothSides before, BothSides after) {
      agreement.Add({.before = before,
                     .after = after,
                     .epsilon = update.epsilon,
                     .weight = weight,
                     .statistic = statistic});
    };
    add(0, update.before, update.after);
    add(1, update.max_before, update.max_after);
    add(2, update.min_before, update.min_after);
  }
  return agreement;
}

// Whether a buffer, or another value that no optimizer moves, moved differently by far more than
// rounding: nothing enlarges the rounding of a running statistic.
bool ABufferMovedOtherwise(const std::vector<WeightUpdate>& updates) {
  constexpr double kOfMovement = 0.01;
  return std::any_of(updates.begin(), updates.end(), [](const WeightUpdate& u) {
    const double target = u.after.target - u.before.target,
                 golden = u.after.golden - u.before.golden;
    const double moved = std::max(std::abs(target), std::abs(golden));
    return u.wrong && !u.trained && std::abs(target - golden) > kOfMovement * moved;
  });
}

// Whether relations, which know the error with which each weight was left, name a weight first, or
// say of half of them that they are others: the step began so, whatever its calls show.
bool BeganDifferently(const RankResult& result, const std::vector<WeightUpdate>& updates) {
  if (!result.weights.unrelated || result.first.pair < 0) return false;
  const auto of = [&](auto test) { return std::count_if(updates.begin(), updates.end(), test); };
  const auto wrong = of([](const WeightUpdate& u) { return u.trained && u.wrong; });
  const auto trained = of([](const WeightUpdate& u) { return u.trained && !u.by_chance; });
  return wrong > 0 && (result.weights.first_is_weight || 2 * wrong >= trained);
}

const RankResult* Before(std::span<const RankResult> results, const RankResult& result) {
  const RankResult* before = nullptr;
  for (const RankResult& r : results) {
    if (r.rank != result.rank || r.step >= result.step || !r.failed.ok()) continue;
    if (before == nullptr || r.step > before->step) before = &r;
  }
  return before;
}

// Whether what was recorded begins with the update behind `first`, and that moved the weights
// alike.
bool FirstUpdateAgrees(std::span<const RankResult> results, const RankResult* first,
                       const RankResult& before) {
  if (first == nullptr || Before(results, *first) != nullptr) return false;
  const UpdateAgreement agreement = AgreementOf(UpdatesBetween(*first, before, /*bits=*/false));
  return agreement.agrees() && agreement.otherwise(first->weights.gradient_noise) == 0;
}

// Of the weights as the calls used them, else as weights.json has them. `first`: before `before`;
// null: there is none.
UpdateFault FaultBehind(std::span<const RankResult> results, const RankResult& before,
                        const RankResult& result, const RankResult* first,
                        const std::vector<WeightUpdate>& updates) {
  using Kind = UpdateFault::Kind;
  const StepOfRank of_first = first == nullptr ? StepOfRank() : AsStep(*first);
  const UpdateFault fault =
      FaultOfUpdate(AsStep(before), AsStep(result), first == nullptr ? nullptr : &of_first);
  if (fault.kind != Kind::kNone) return fault;
  const UpdateAgreement agreement = AgreementOf(updates);
  if (const UpdateFault of_file = agreement.fault(); of_file.kind != Kind::kNone) return of_file;
  const double otherwise = agreement.otherwise(before.weights.gradient_noise);
  if (otherwise == 0) return {};
  return {FirstUpdateAgrees(results, first, before) ? Kind::kHistory : Kind::kOther, otherwise};
}

// Of several ranks: whether they have lost the same weights in one run only.
Message DescribeRanks(std::span<const RankResult> results, const RankResult& before) {
  const std::optional<Drift> drift = FindDrift(results);
  return drift && drift->after_step == before.step ? DescribeDrift(*drift) : Message();
}

// Makes the update behind `before` the first divergence of the result.
void Name(std::span<const RankResult> results, const RankResult& before, const StepOfRank& step,
          const std::vector<WeightUpdate>& updates, const UpdateFault& fault, RankResult* r) {
  const Message moved = Message::Joined(
      {DescribeFault(fault), DescribeWrongUpdates(updates), DescribeRanks(results, before)}, "; ");
  const Message shown = r->first.pair < 0 ? "All calls of step {} agree"_t(r->step)
                        : r->first.source_line.empty()
                            ? "It shows first in {}"_t(r->first_name)
                            : "It shows first in {} ({})"_t(r->first_name, r->first.source_line);
  Message why = Message::Joined({DescribeStepThatAgrees(step, r->step), moved, shown}, ". ");
  NameWrongUpdate(before.step, std::move(why), r);
}

// A weight that differs behind a step that agrees was the same when the run began: no checkpoint is
// to blame, but what moved it.
void AdviseOnUpdate(int32_t before, RankResult* r) {
  if (r->first.pair < 0 || !r->first.advice.English().starts_with("compare the checkpoints"))
    return;
  r->first.advice = AdviceOnUpdates();
  r->first.why = Message::Joined(
      {r->first.why,
       "step {} agrees, so what put the weights apart is between the steps"_t(before)},
      "; ");
}

}  // namespace

void NameWrongUpdate(int32_t after_step, Message why, RankResult* r) {
  const int32_t rank = r->trace.rank;
  r->first = {.pair = std::max(r->first.pair, 0),
              .call_class = CallClass::kInherited,
              .confidence = kConfidence,
              .why = std::move(why),
              .advice = AdviceOnUpdates()};
  r->first_name = "update of the weights after step {}"_t(after_step);
  r->trace = {.rank = rank, .first = 0};
  r->wrong_update_after = after_step;
  r->summary.verdict = RunVerdict::kDiffers;
}

std::vector<WeightUpdate> UpdatesBetween(const RankResult& earlier, const RankResult& later,
                                         bool bits) {
  const bool same_bits = earlier.summary.verdict == RunVerdict::kEqual && !AsStep(earlier).rounds;
  std::vector<std::string> order;
  WeightsByName before = WeightsOf(earlier, true), golden_before = WeightsOf(earlier, false),
                after = WeightsOf(later, true, &order), golden_after = WeightsOf(later, false);
  std::vector<std::string> golden_order;
  if (later.target_is_mindspore) {
    RenameWeights(golden_before, &before, &order);
    RenameWeights(golden_after, &after, &golden_order);
  } else if (later.golden_is_mindspore) {
    RenameWeights(before, &golden_before, &golden_order);
    RenameWeights(after, &golden_after, &golden_order);
  }
  const bool one_update = same_bits && later.step == earlier.step + 1;
  const Limits limits = LimitsOf(later);
  std::vector<WeightUpdate> updates;
  for (const std::string& name : order) {
    const auto a = before.find(name), b = golden_before.find(name), c = after.find(name),
               d = golden_after.find(name);
    if (a == before.end() || b == golden_before.end() || d == golden_after.end()) continue;
    const bool judged = std::ranges::find(earlier.weights.written, name) !=
                        earlier.weights.written.end();  // by relations
    if (judged || IsCounter(c->second)) continue;
    const bool trained = c->second.trained || d->second.trained;
    // What nobody moves has the same bits after a step that has. An optimizer may round
    // differently, and so may code that is not recorded: a moving average of weights.
    const bool moved = Differs(limits, d->second, b->second, /*bits=*/true, one_update);
    const bool exact = bits || (same_bits && !trained && !moved);
    const bool by_chance = MovesByChance(earlier.weights, name);
    // Relations know the error with which each weight was left.
    const bool related = !same_bits && IsRelated(later.weights, name, trained);
    updates.push_back(
        {.name = name,
         .dimensions = c->second.shape ? static_cast<int>(c->second.shape->size()) : -1,
         .trained = trained,
         .by_chance = by_chance,
         .wrong = !by_chance && !related &&
                  !Differs(limits, a->second, b->second, exact, one_update) &&
                  Differs(limits, c->second, d->second, exact, one_update),
         .before = {a->second.norm, b->second.norm},
         .after = {c->second.norm, d->second.norm},
         .epsilon = CoarserRounding(c->second.dtype, d->second.dtype).epsilon,
         .max_before = {a->second.max, b->second.max},
         .max_after = {c->second.max, d->second.max},
         .min_before = {a->second.min, b->second.min},
         .min_after = {c->second.min, d->second.min}});
  }
  return updates;
}

bool FilesCarryRounding(const RankResult& earlier, const RankResult& later) {
  const StepOfRank step = AsStep(earlier);
  const double error = later.weights.first_error;
  if (!step.agrees || !step.rounds || !later.weights.begin.empty() || error == 0) return false;
  const std::vector<WeightUpdate> updates = UpdatesBetween(earlier, later, /*bits=*/false);
  const UpdateAgreement agreement = AgreementOf(updates);
  if (!agreement.agrees() || agreement.otherwise(earlier.weights.gradient_noise) > 0 ||
      ABufferMovedOtherwise(updates))
    return false;
  bool apart = false;
  double moved = 0;
  const auto add = [&](BothSides before, BothSides after) {
    apart |= !SameNumber(after.target, after.golden);
    const double change = std::abs(after.golden - before.golden) / std::abs(before.golden);
    if (std::isfinite(change)) moved = std::max(moved, change);
  };
  for (const WeightUpdate& u : updates) {
    add(u.before, u.after), add(u.max_before, u.max_after), add(u.min_before, u.min_after);
  }
  constexpr double kOfMovement = 0.01;
  return apart && error <= kOfMovement * moved;
}

void JudgeSteps(std::span<RankResult> results) {
  CountEmptyPairsAsEqual(results);
  ForgiveCarriedRounding(results);
  NameWrongUpdates(results);
  JudgeCollectives(results);
}

void NameWrongUpdates(std::span<RankResult> results) {
  int32_t named = INT32_MAX;  // the first step that is wrong
  for (RankResult& r : results) {
    if (r.step > named) return;
    if (!r.failed.ok() || !r.judged.ok() || r.rounding_of_step >= 0) continue;
    const RankResult* before = Before(results, r);
    if (before != nullptr) {
      const StepOfRank step = AsStep(*before);
      if (step.agrees) {
        const std::vector<WeightUpdate> updates = UpdatesBetween(*before, r, !r.exact.empty());
        const UpdateFault fault =
            FaultBehind(results, *before, r, Before(results, *before), updates);
        const bool apart = fault.kind != UpdateFault::Kind::kNone;
        const bool wrong = apart || std::any_of(updates.begin(), updates.end(),
                                                [](const WeightUpdate& u) { return u.wrong; });
        const bool rounding = step.rounds && !apart && !ABufferMovedOtherwise(updates) &&
                              (r.first.pair < 0 || AgreementOf(updates).agrees()) &&
                              !BeganDifferently(r, updates);
        if (wrong && !rounding) {
          Name(results, *before, step, updates, fault, &r);
        } else {
          AdviseOnUpdate(before->step, &r);
        }
      }
    }
    if (r.first.pair >= 0) named = r.step;
  }
}

}  // namespace msprobe::compare
