#include "engine/report_page/element_differences.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/compare/model/value_text.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/kernels/distribution.h"
#include "engine/report_page/page_values.h"

namespace msprobe::report_page {
namespace {

using kernels::DiffHistogram;

// The number with all its digits, as short as it can be: 0.1 for the float that is nearest to 0.1.
void AppendWholeNumber(double value, std::string* json) {
  if (!std::isfinite(value)) return AppendShortNumber(value, json);
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) == value) {
    fmt::format_to(std::back_inserter(*json), "{}", narrow);
  } else {
    fmt::format_to(std::back_inserter(*json), "{}", value);
  }
}

void AppendPlaces(std::string_view name, const DiffHistogram::Places& places, Shape shape,
                  std::string* json) {
  fmt::format_to(std::back_inserter(*json), ",\"{}\":[", name);
  for (const DiffHistogram::Place& place : places.span()) {
    if (json->back() != '[') *json += ',';
    *json += '[';
    AppendJsonString(json, compare::IndexText(place.index, shape));
    for (const double value : {place.target, place.golden}) {
      *json += ',';
      AppendWholeNumber(value, json);
    }
    *json += ']';
  }
  *json += ']';
}

// The range of the finite numbers of both sides; of a side with NaN or infinity the other one's.
std::optional<std::pair<double, double>> RangeOf(const Leaf& target, const Leaf& golden) {
  double low = Leaf::kNaN, high = Leaf::kNaN;
  for (const Leaf* leaf : {&target, &golden}) {
    if (!leaf->has_stats || !std::isfinite(leaf->min_value) || !std::isfinite(leaf->max_value))
      continue;
    low = std::isnan(low) ? leaf->min_value : std::min(low, leaf->min_value);
    high = std::isnan(high) ? leaf->max_value : std::max(high, leaf->max_value);
  }
  if (!(low < high) || !std::isfinite(high - low)) return std::nullopt;
  return std::pair{low, high};
}

}  // namespace

ElementDifferences::ElementDifferences(const compare::Comparison& comparison,
                                       std::span<const uint32_t> rows, uint64_t bytes)
    : c_(comparison) {
  if (c_.target.sample_step != c_.golden.sample_step) return;  // other elements on each side
  uint64_t used = 0;
  for (const uint32_t row : rows) {
    const kernels::Diff* diff = c_.DiffOf(row);
    if (diff == nullptr || diff->unequal == 0) continue;
    if (found_.size() >= kMostRows || used >= bytes) break;
    used += Count(row);
  }
}

uint64_t ElementDifferences::Count(uint32_t row) {
  const Leaf& target_leaf = c_.target.leaves[c_.rows[row].target];
  const Leaf& golden_leaf = c_.golden.leaves[c_.rows[row].golden];
  if (!dump::HasTensorData(target_leaf) || !dump::HasTensorData(golden_leaf)) return 0;
  // The comparison has verified the checksums; a file that changed since then is only drawn wrong.
  const auto read = [](const Dump& dump, const Leaf& leaf) {
    return dump::ReadTensorData(dump, leaf, formats::Verify::kByCaller);
  };
  const Result<formats::TensorFile> target = read(c_.target, target_leaf);
  const Result<formats::TensorFile> golden = read(c_.golden, golden_leaf);
  if (!target.ok() || !golden.ok()) return 0;
  const Result<DiffHistogram> found =
      kernels::CountDifferences(target->view(), golden->view(), &ThreadPool::Default());
  if (!found.ok()) return 0;
  Found& kept = found_.emplace(row, Found{.differences = *found}).first->second;
  const auto range = RangeOf(target_leaf, golden_leaf);
  if (range && kernels::HasOrder(target->view().dtype) && kernels::HasOrder(golden->view().dtype)) {
    kept.low = range->first, kept.high = range->second;
    std::vector<double> bounds;
    for (int k = 1; k < kBins; ++k) bounds.push_back(kept.low + (kept.high - kept.low) * k / kBins);
    kept.target = kernels::CountIntervals(target->view(), bounds, nullptr, &ThreadPool::Default());
    kept.golden = kernels::CountIntervals(golden->view(), bounds, nullptr, &ThreadPool::Default());
  }
  return dump::TensorDataSize(c_.target, target_leaf) +
         dump::TensorDataSize(c_.golden, golden_leaf);
}

void ElementDifferences::AppendJson(uint32_t row, std::string* json) const {
  const auto found = found_.find(row);
  if (found == found_.end()) {
    *json += '0';
    return;
  }
  const DiffHistogram& h = found->second.differences;
  const auto some = [](int64_t n) { return n > 0; };
  const auto begin = std::find_if(h.decades.begin(), h.decades.end(), some);
  const auto end = std::find_if(h.decades.rbegin(), h.decades.rend(), some).base();
  fmt::format_to(std::back_inserter(*json),
                 "{{\"equal\":{},\"nonfinite\":{},\"from\":{},\"counts\":[", h.equal, h.nonfinite,
                 begin - h.decades.begin() + DiffHistogram::kLowest);
  for (auto at = begin; at < end; ++at) {
    if (at > begin) *json += ',';
    AppendInteger(json, *at);
  }
  *json += ']';
  if (const Found& f = found->second; !f.target.empty()) {
    *json += ",\"values\":{\"low\":";
    AppendWholeNumber(f.low, json);
    *json += ",\"high\":";
    AppendWholeNumber(f.high, json);
    fmt::format_to(std::back_inserter(*json), ",\"target\":[{}],\"golden\":[{}]}}",
                   fmt::join(f.target, ","), fmt::join(f.golden, ","));
  }
  if (!c_.target.sampled && !c_.golden.sampled) {
    const Shape shape = c_.target.leaves[c_.rows[row].target].shape;
    AppendPlaces("first", h.first, shape, json);
    AppendPlaces("worst", h.worst, shape, json);
  }
  *json += '}';
}

}  // namespace msprobe::report_page
