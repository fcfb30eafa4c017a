#include "engine/anomaly/value_kinds.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

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
Message Share(int64_t count, int64_t elements, bool all, const Message& what) {
  if (elements == 1) return "the only element is {}"_t(what);
  if (all || (count > 0 && count == elements)) {
    return elements > 0 ? "all {} elements are {}"_t(elements, what)
                        : "all elements are {}"_t(what);
  }
  if (count < 0) {
    return elements > 0 ? "some of {} elements are {}"_t(elements, what)
                        : "some elements are {}"_t(what);
  }
  if (count == 1) {
    return elements > 0 ? "1 of {} elements is {}"_t(elements, what) : "1 element is {}"_t(what);
  }
  return elements > 0 ? "{} of {} elements are {}"_t(count, elements, what)
                      : "{} elements are {}"_t(count, what);
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

Message KindsWord(const ValueKinds& kinds) {
  if (kinds.nan && kinds.infinite()) return "NaN and Inf"_t;
  return std::string(kinds.nan ? "NaN" : kinds.infinite() ? "Inf" : "");
}

Message DescribeNonfinite(const Leaf& leaf) {
  const ValueKinds kinds = KindsOf(leaf);
  if (!kinds.any()) return {};
  if (leaf.kind != LeafKind::kTensor) return "the value is {}"_t(leaf.value.view());
  const int64_t elements = leaf.shape.elements();
  const ElementCounts& counts = *leaf.counts;
  const bool counted = counts.nan >= 0 && counts.pos_inf >= 0 && counts.neg_inf >= 0;
  std::vector<Message> parts;
  if (kinds.nan)
    parts.push_back(Share(counted ? counts.nan : -1, elements, false, std::string("NaN")));
  if (kinds.infinite()) {
    // Without counts: Max and Min are the same infinity, so that every element is.
    const bool all = !counted && !kinds.nan && leaf.max_value == leaf.min_value;
    const Message sign = kinds.neg_inf && kinds.pos_inf
                             ? "Inf or -Inf"_t
                             : std::string(kinds.neg_inf ? "-Inf" : "Inf");
    parts.push_back(Share(counted ? counts.pos_inf + counts.neg_inf : -1, elements, all, sign));
  }
  return Message::Joined(std::move(parts), "; ");
}

}  // namespace msprobe::anomaly
