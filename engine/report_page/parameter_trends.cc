#include "engine/report_page/parameter_trends.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace msprobe::report_page {
namespace {

std::vector<int64_t> Sorted(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

size_t IndexOf(const std::vector<int64_t>& numbers, int64_t number) {
  return static_cast<size_t>(std::lower_bound(numbers.begin(), numbers.end(), number) -
                             numbers.begin());
}

}  // namespace

ParameterTrends::ParameterTrends(std::span<const std::pair<int64_t, int64_t>> pairs,
                                 const std::string& folder) {
  std::vector<int64_t> steps, ranks;
  for (const auto& [step, rank] : pairs) steps.push_back(step), ranks.push_back(rank);
  steps = Sorted(std::move(steps)), ranks = Sorted(std::move(ranks));
  steps_ = steps.size();
  for (const auto& [step, rank] : pairs)
    places_.emplace_back(IndexOf(steps, step), IndexOf(ranks, rank));
  const std::initializer_list<TrendTitle> titles = {{.title = "weights"},
                                                    {.title = "gradients"},
                                                    {.title = "outputs"},
                                                    {"loss", TrendMeasure::kValue}};
  for (const TrendTitle& title : titles) {
    Trend& trend = trends_.emplace_back(title, steps, ranks);
    for (size_t i = 0; i < places_.size(); ++i)
      trend.SetPart(places_[i].first, places_[i].second, static_cast<int32_t>(i));
    points_.emplace_back(folder, sizeof(Waiting), kMostTrendCells);
  }
}

Status ParameterTrends::Add(size_t pair, const compare::Comparison& comparison) {
  return steps_ < 2 ? Status::Ok() : Add(pair, PointsOf(comparison));
}

Status ParameterTrends::Add(size_t pair, const ParameterPoints& points) {
  const std::lock_guard lock(mutex_);
  MSPROBE_RETURN_IF_ERROR(AddTo(0, pair, points.weights));
  MSPROBE_RETURN_IF_ERROR(AddTo(1, pair, points.gradients));
  MSPROBE_RETURN_IF_ERROR(AddTo(2, pair, points.outputs));
  return AddTo(3, pair, points.losses);
}

Status ParameterTrends::AddTo(size_t kind, size_t pair, std::span<const TrendPoint> points) {
  const auto [step, rank] = places_[pair];
  uint64_t order = uint64_t{pair} << 32;  // pairs may be added in any order
  for (const TrendPoint& point : points) {
    const Waiting waiting{trends_[kind].Announce(point.name, step, rank, point.cell.apart, order++),
                          static_cast<uint32_t>(pair), point.cell};
    MSPROBE_RETURN_IF_ERROR(points_[kind].Append(&waiting));
  }
  return Status::Ok();
}

Result<PageText> ParameterTrends::Html() {
  for (size_t kind = 0; kind < trends_.size(); ++kind) {
    Trend& trend = trends_[kind];
    trend.Choose();
    if (!trend.IsDrawn()) continue;
    MSPROBE_RETURN_IF_ERROR(points_[kind].ForEach([&](const void* record) {
      Waiting waiting;
      std::memcpy(&waiting, record, sizeof(waiting));
      const auto [step, rank] = places_[waiting.pair];
      trend.Set(waiting.row, step, rank, waiting.cell);
    }));
  }
  PageText html;
  AppendTrends(trends_, &html);
  return html;
}

}  // namespace msprobe::report_page
