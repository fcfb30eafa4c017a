// The step and the parameter where the similarity of gradients first falls.
//
//   const std::optional<GradientFall> fall = FirstFall(table, {});
//   if (fall) Use(fall->step, fall->parameter);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/gradients/similarity_table.h"

namespace msprobe::gradients {

// The rule of the older tools: a parameter falls when its first similarity is below `lowest_first`,
// or is lower by more than `largest_drop` than in the step before.
//
// A gradient that is zero by mathematics (of a bias before a norm, of the bias of keys under a
// softmax) holds what rounding left of a sum whose terms are as large as those of the weight beside
// it. Its directions are chance. A parameter whose gradient is on both sides at most `rounding`
// times as large, by root mean square, as the largest of its module's parameters does not fall. 0:
// all may.
//
// The keys' third of a joined bias (`in_proj_bias`, `qkv.bias`) is such a gradient, before a norm
// the values' third, too, and nothing of their size is recorded. What is real in them makes the
// norm larger: where the norms of both sides agree up to the share `joined`, directions of these
// thirds are not judged; but they are where nearly all values point elsewhere, since a sign of
// another direction leaves the norm.
//
// A whole chain may be such a gradient, as all in front of a norm whose result is averaged. The
// terms that cancel lie in the backward pass of the norm, and only gradients of parameters are
// recorded, so such a chain looks like a real one after a factor of 1e-6. A gradient that is as
// small beside the largest of the step neither falls nor is right: MayBeRounding names it. It falls
// where nearly all elements point elsewhere and the norms agree up to `joined`: that is a sign, and
// not chance.
//
// A backward pass in bfloat16 or float16 (Similarity::epsilon) leaves more: a gradient of at most
// `coarse` of its roundings, beside the largest of its module, is unknown in the same way. And it
// turns elements of every gradient that are near zero: of a parameter of 32 elements one is 3 %.
// What it turns is measured, as the share of the gradients that do not fall; where no more elements
// of a parameter point elsewhere than chance makes of twice that share, the parameter is unknown.
// More than `most_turned` is no rounding: right pairs have 0.1 %, and 1 % at most, pairs with a
// fault mostly 6 % and more.
struct FallRule {
  double lowest_first = 0.97, largest_drop = 0.03;
  // As many roundings of float32 as compare explains of one call.
  double rounding = 64 * DTypeEpsilon(DType::kFloat32);
  double joined = 1e-3;
  double coarse = 4, most_turned = 0.01;
};

struct GradientFall {
  int64_t step = 0;
  std::string parameter;
  std::optional<double> before;  // nullopt: the first step that was compared
  double similarity = 0;
  // Elements with another direction, and all elements; -1: not known.
  int64_t changed = 0, count = 0;
  std::vector<std::string> others;  // which also fall in this step, in the order of the table
  Message why;                      // this parameter and no other: a sentence
};

// The parameters whose gradients are rounding in a step in which their directions differ: in the
// order of the table.
std::vector<std::string> OnlyRounding(const SimilarityTable& table, const FallRule& rule);

// The parameters that would fall in some step if rounding did not explain it as well: whether they
// went wrong is not known. In the order of the table.
std::vector<std::string> MayBeRounding(const SimilarityTable& table, const FallRule& rule);

// Parameters stand in the order of the model. A backward pass runs from the last to the first: when
// the last ones do not fall, an error begins at the last one that falls. When all fall, the one
// that falls most is named.
std::optional<GradientFall> FirstFall(const SimilarityTable& table, const FallRule& rule);

}  // namespace msprobe::gradients
