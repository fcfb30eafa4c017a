#include "engine/report_page/trends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/page_release.h"
#include "engine/model/names.h"

namespace msprobe::report_page {
namespace {

using compare::Comparison;

// Points of one origin; the first one of a name counts.
class Points {
 public:
  void Add(std::string name, const Comparison& c, size_t pair, uint32_t row) {
    const compare::Row& r = c.rows[row];
    if (r.target < 0 || r.golden < 0) return;
    const Leaf &target = c.target.leaves[r.target], &golden = c.golden.leaves[r.golden];
    if (target.kind != LeafKind::kTensor || golden.kind != LeafKind::kTensor) return;
    if (!names_.insert(name).second) return;
    const compare::Measure& measure = c.measures[row];
    points_.push_back({.name = std::move(name),
                       .target_norm = static_cast<float>(target.norm_value),
                       .golden_norm = static_cast<float>(golden.norm_value),
                       .apart = static_cast<float>(measure.severity),
                       .verdict = measure.verdict,
                       .call = static_cast<int32_t>(pair)});
  }
  bool empty() const { return points_.empty(); }
  std::vector<TrendPoint> Take() { return std::move(points_); }

 private:
  std::vector<TrendPoint> points_;
  std::unordered_set<std::string> names_;
};

// As page/trends.js knows them, in the order of TrendMeasure.
constexpr std::string_view kMeasures[] = {"roundings", "share", "norm"};

// Takes a prefix away; whether it was there.
bool Without(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

ParameterPoints PointsOf(const Comparison& c) {
  Points of_modules, of_gradients, optimizer_weights, optimizer_gradients;
  compare::PageRelease pages(c.target, c.golden);
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const compare::RecordPair& pair = c.pairs[p];
    pages.RowsDone(pair.row_count);
    if (!pair.matched()) continue;
    const Record& record = c.target.records[pair.target];
    const bool optimizer = compare::IsOptimizerCall(record.api);
    if (!record.is_module && !optimizer) continue;
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      std::string_view path = compare::LeafPath(c, static_cast<int32_t>(row));
      if (optimizer) {
        if (Without("input.weights.", &path)) optimizer_weights.Add(std::string(path), c, p, row);
        if (Without("input.gradients.", &path))
          optimizer_gradients.Add(std::string(path), c, p, row);
      } else if (record.direction == Direction::kParameterGrad) {
        of_gradients.Add(ParameterName(record.api, path), c, p, row);
      } else if (record.direction == Direction::kForward && Without("parameters.", &path)) {
        of_modules.Add(ParameterName(record.api, path), c, p, row);
      }
    }
  }
  return {.weights = (of_modules.empty() ? optimizer_weights : of_modules).Take(),
          .gradients = (of_gradients.empty() ? optimizer_gradients : of_gradients).Take()};
}

Trend::Trend(TrendTitle title, std::vector<int64_t> steps, std::vector<int64_t> ranks)
    : title_(std::move(title)), steps_(std::move(steps)), ranks_(std::move(ranks)) {
  parts_.assign(Cells(), -1);
}

void Trend::Add(size_t step, size_t rank, const TrendPoint& point) {
  const auto [place, is_new] = rows_.try_emplace(point.name, names_.size());
  if (is_new) {
    names_.push_back(point.name);
    cells_.resize(cells_.size() + Cells());
  }
  cells_[place->second * Cells() + rank * steps_.size() + step] = {
      .target_norm = point.target_norm,
      .golden_norm = point.golden_norm,
      .apart = point.apart,
      .verdict = static_cast<uint8_t>(point.verdict),
      .call = point.call};
}

bool Trend::IsDrawn() const {
  for (size_t begin = 0; begin < cells_.size(); begin += steps_.size()) {  // of a name and rank
    const auto from = cells_.begin() + static_cast<int64_t>(begin);
    const auto known = std::count_if(from, from + static_cast<int64_t>(steps_.size()),
                                     [](const Cell& cell) { return cell.verdict != kNothing; });
    if (known > (title_.measure == TrendMeasure::kRoundings ? 1 : 0)) return true;
  }
  return false;
}

// The parameters that the page holds, in their order.
std::vector<size_t> Trend::Kept() const {
  std::vector<size_t> kept(names_.size());
  std::iota(kept.begin(), kept.end(), 0);
  const size_t most = std::max<size_t>(1, kMostTrendCells / std::max<size_t>(1, Cells()));
  if (kept.size() <= most) return kept;
  std::vector<float> worst(names_.size(), -1);
  for (size_t i = 0; i < cells_.size(); ++i) {
    float& of_name = worst[i / Cells()];
    if (cells_[i].apart > of_name) of_name = cells_[i].apart;
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [&](size_t a, size_t b) { return worst[a] > worst[b]; });
  kept.resize(most);
  std::sort(kept.begin(), kept.end());
  return kept;
}

void Trend::AppendHead(std::span<const size_t> kept, std::string* json) const {
  *json += "{\"title\":";
  AppendJsonString(json, title_.title);
  *json += fmt::format(",\"measure\":\"{}\",\"steps\":[{}],\"ranks\":[{}],\"parts\":[{}],",
                       kMeasures[static_cast<size_t>(title_.measure)], fmt::join(steps_, ","),
                       fmt::join(ranks_, ","), fmt::join(parts_, ","));
  *json += fmt::format("\"parameters\":{},\"names\":[", names_.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) *json += ',';
    AppendJsonString(json, names_[kept[i]]);
  }
  *json += "]}";
}

void Trend::AppendColumns(std::string_view id, std::span<const size_t> kept, PageText* html) const {
  const auto column = [&](std::string_view name, std::string_view type, auto member, auto zero) {
    std::vector<decltype(zero)> numbers;
    numbers.reserve(kept.size() * Cells());
    for (const size_t row : kept) {
      for (size_t i = 0; i < Cells(); ++i)
        numbers.push_back(static_cast<decltype(zero)>(cells_[row * Cells() + i].*member));
    }
    AppendColumn<decltype(zero)>(fmt::format("{}-{}", id, name), type, numbers, html);
  };
  column("target", "f32", &Cell::target_norm, 0.0F);
  column("golden", "f32", &Cell::golden_norm, 0.0F);
  column("apart", "f32", &Cell::apart, 0.0F);
  column("verdict", "u8", &Cell::verdict, uint8_t{0});
  column("call", "u32", &Cell::call, uint32_t{0});
}

void AppendTrends(std::span<const Trend> trends, PageText* html) {
  std::string head;
  size_t drawn = 0;
  for (const Trend& trend : trends) {
    if (!trend.IsDrawn()) continue;
    const std::vector<size_t> kept = trend.Kept();
    head += drawn == 0 ? "[" : ",";
    trend.AppendHead(kept, &head);
    trend.AppendColumns(fmt::format("t{}", drawn++), kept, html);
  }
  if (drawn > 0) AppendText("trends", head + "]", html);
}

}  // namespace msprobe::report_page
