// Regions: stretches in which the two runs make other calls.
//
//   for (const Region& region : RegionsOf(comparison)) Print(NamesOf(comparison, region, true));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct Region {
  // The region at the first divergence lets a wrong value out. All other regions are rewrites: what
  // they let out agrees (relations/decide.h).
  bool wrong = false;
  // Indices into Comparison::pairs, in their order. Some have no partner.
  std::vector<int32_t> pairs;
  // How many of them the target and the golden have.
  int64_t target_calls = 0, golden_calls = 0;
};

// The region at the first divergence, if it begins with a call that differs in structure; then the
// rewrites, in execution order. Calls are in one region when one follows the other, or takes what
// the other made; when a call of both runs takes what the one made in the target and the other in
// the golden; and when they are backward calls of one region. Rewrites and the first divergence
// must be found. Stated regions are taken as they are.
std::vector<Region> RegionsOf(const Comparison& comparison);

// The names of the calls of one side, in their order; at most `most`.
std::vector<std::string_view> NamesOf(const Comparison& comparison, const Region& region,
                                      bool target, size_t most = SIZE_MAX);
// "scaled_dot_product_attention" and "transpose, matmul, softmax, matmul": the operations of one
// side, shortened behind the sixth one; "no recorded call" when the side has none.
Message DescribeCalls(const Comparison& comparison, const Region& region, bool target);

// "12 rewrites: scaled_dot_product_attention for transpose, matmul, ... (12 times)": the rewrites
// of a comparison in one sentence, those that occur most often first. A rewrite of calls by calls
// of the same names is left out: the sentence would say nothing. "": there are none.
Message DescribeRewrites(const Comparison& comparison, const std::vector<Region>& regions);
// "The target's scaled_dot_product_attention stands for the golden's transpose, matmul, ...": the
// region that is wrong; "": there is none, or both sides have calls of the same names.
Message DescribeWrongRegion(const Comparison& comparison, const std::vector<Region>& regions);

}  // namespace msprobe::compare
