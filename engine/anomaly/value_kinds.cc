#include "engine/anomaly/value_kinds.h"

#include <fmt/format.h>

#include <cmath>

namespace msprobe::anomaly {
namespace {

bool IsNaN(std::string_view text, double value) {
  return std::isnan(value) && (text == "NaN" || text == "nan" || text == "-nan");
}

// Adds what one statistic says; false: the statistic was not recorded.
bool AddStatistic(std::string_view text, double value, ValueKinds* kinds) {
  kinds->nan |= IsNaN(text, value);
  kinds->pos_inf |= std::isinf(value) && value > 0;
  kinds->neg_inf |= std::isinf(value) && value < 0;
  return !std::isnan(value) || IsNaN(text, value);
}

// "3 of 16 elements are NaN". `count` -1: how many is not known; `all`: it is every element.
std::string Share(int64_t count, int64_t elements, bool all, std::string_view what) {
  if (elements == 1) return fmt::format("the only element is {}", what);
  if (all || (count > 0 && count == elements)) {
    return elements > 0 ? fmt::format("all {} elements are {}", elements, what)
                        : fmt::format("all elements are {}", what);
  }
  if (count < 0) {
    return elements > 0 ? fmt::format("some of {} elements are {}", elements, what)
                        : fmt::format("some elements are {}", what);
  }
  if (count == 1) {
    return elements > 0 ? fmt::format("1 of {} elements is {}", elements, what)
                        : fmt::format("1 element is {}", what);
  }
  return elements > 0 ? fmt::format("{} of {} elements are {}", count, elements, what)
                      : fmt::format("{} elements are {}", count, what);
}

}  // namespace

ValueKinds KindsOf(const Leaf& leaf) {
  ValueKinds kinds;
  if (leaf.kind == LeafKind::kNone) return kinds;
  const ElementCounts& counts = *leaf.counts;
  if (counts.nan >= 0 && counts.pos_inf >= 0 && counts.neg_inf >= 0)
    return {counts.nan > 0, counts.pos_inf > 0, counts.neg_inf > 0};
  const bool max = AddStatistic(leaf.max, leaf.max_value, &kinds);
  const bool min = AddStatistic(leaf.min, leaf.min_value, &kinds);
  if (max && min) return kinds;
  AddStatistic(leaf.mean, leaf.mean_value, &kinds);
  AddStatistic(leaf.norm, leaf.norm_value, &kinds);
  return kinds;
}

std::string_view KindsWord(const ValueKinds& kinds) {
  return kinds.nan && kinds.infinite() ? "NaN and Inf"
         : kinds.nan                   ? "NaN"
         : kinds.infinite()            ? "Inf"
                                       : "";
}

std::string DescribeNonfinite(const Leaf& leaf) {
  const ValueKinds kinds = KindsOf(leaf);
  if (!kinds.any()) return "";
  if (leaf.kind != LeafKind::kTensor) return fmt::format("the value is {}", leaf.value.view());
  const int64_t elements = leaf.shape.elements();
  const ElementCounts& counts = *leaf.counts;
  const bool counted = counts.nan >= 0 && counts.pos_inf >= 0 && counts.neg_inf >= 0;
  std::string text;
  if (kinds.nan) text = Share(counted ? counts.nan : -1, elements, false, "NaN");
  if (kinds.infinite()) {
    // Without counts: Max and Min are the same infinity, so that every element is.
    const bool all = !counted && !kinds.nan && leaf.max_value == leaf.min_value;
    const std::string_view sign = !kinds.neg_inf ? "Inf" : !kinds.pos_inf ? "-Inf" : "Inf or -Inf";
    text += text.empty() ? "" : "; ";
    text += Share(counted ? counts.pos_inf + counts.neg_inf : -1, elements, all, sign);
  }
  return text;
}

}  // namespace msprobe::anomaly
