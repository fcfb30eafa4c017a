// Tells what changed the weights between two steps: step 3 of both runs agrees, and step 4 begins
// with other weights.
//
//   StepWeights weights = WeightsIn(comparison);   // of each step; then it can be freed
//   StepOfRank earlier{3, true, false, &before}, later{4, false, false, &weights};
//   Message text = DescribeBetweenSteps(earlier, later, before.file_order);   // no text, or why
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/update_agreement.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// What is kept of the weights of one step.
struct StepWeights {
  // A parameter, and its statistics in both runs.
  struct Weight {
    std::string name;
    BothSides norm, max, min;
    bool differs = false;
    double epsilon = 0;  // one rounding of a number of 1 in its dtype
  };
  // As the step used them first: those of modules, else those of optimizers, else the inputs of
  // calls that require a gradient and that no recorded call made. The first 64, and those behind
  // them that differ, up to four.
  std::vector<Weight> begin;
  std::vector<Weight> end;           // behind the last step of an optimizer, the same selection
  int64_t count = 0, differing = 0;  // parameters in `begin`, before the selection
  bool begins_otherwise = false;     // a weight differs that no recorded call has made
  bool first_is_weight = false;      // the first divergence is in a parameter that a module has
  // Weights whose gradients are zero by mathematics (zero_gradients.h): the optimizer moves them by
  // chance.
  std::vector<std::string> by_chance;
  // Decided::unrelated_weights and related_weights; none where rules decided.
  std::optional<std::vector<std::string>> unrelated, related;
  std::vector<std::string> written;  // Decided::written_weights
  // The relative error of the first divergence when it is in a call that reads a weight with other
  // bits; else 0. Elements of a weight may be apart although its statistics agree.
  double error_behind_weight = 0;
  // The relative error of the first divergence; 0: there is none, or it has no number.
  double first_error = 0;
  // The relative error of nine of ten gradients of parameters; NaN: none was compared.
  double gradient_noise = std::numeric_limits<double>::quiet_NaN();
  bool gradients_agree = false;              // gradients were compared, and none differs
  std::vector<std::string> optimizer_calls;  // recorded in both runs; the first six
  Message alone;                             // "fc.bias in the target": only that optimizer has it
  bool in_graph_mode = false;                // of MindSpore, in which level mix is refused
  std::vector<std::string> file_order;       // names in weights.json; empty where there is none
};

StepWeights WeightsIn(const Comparison& comparison);
// Whether `name` is one of `by_chance`.
bool MovesByChance(const StepWeights& step, std::string_view name);

// One step of one rank: its number, whether all its numbers agree, its weights.
struct StepOfRank {
  int32_t step = -1;
  bool agrees = false;
  bool rounds = false;  // it agrees, and not in all bits
  const StepWeights* weights = nullptr;
};

// Whether `later` begins with other weights only because `earlier`, which agrees within rounding,
// was not bit-equal: the weights of both runs moved alike (update_agreement.h). A call that reads
// such a weight may be off by a hundredth of what the update changed: AdamW moves an element whose
// gradient is rounding as far as any other.
// `first`: the step before `earlier`, from which momentum is known; null: there is none.
bool CarriesRounding(const StepOfRank& earlier, const StepOfRank& later,
                     const StepOfRank* first = nullptr);
// The fault of the update between the two.
UpdateFault FaultOfUpdate(const StepOfRank& earlier, const StepOfRank& later,
                          const StepOfRank* first = nullptr);

// What changed the weights after a step that agrees, as far as what it recorded tells.
Message DescribeCause(const StepOfRank& earlier);
// "step 3 agrees, and step 4 begins with other weights: ... It is the optimizer"
Message DescribeStepThatAgrees(const StepOfRank& earlier, int32_t later);

// Why `later` begins with other weights although `earlier` agrees; "" when this is not so.
// `file_order`: names in the order of weights.json, which decides which parameter is named first.
Message DescribeBetweenSteps(const StepOfRank& earlier, const StepOfRank& later,
                             const std::vector<std::string>& file_order);

}  // namespace msprobe::compare
