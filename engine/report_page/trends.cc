#include "engine/report_page/trends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
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

constexpr uint32_t kNotKept = 0xffffffff;

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
                       .cell = {.target_norm = static_cast<float>(target.norm_value),
                                .golden_norm = static_cast<float>(golden.norm_value),
                                .apart = static_cast<float>(measure.severity),
                                .call = static_cast<int32_t>(pair),
                                .verdict = static_cast<uint8_t>(measure.verdict)}});
  }
  // Of the points of one name the one that is furthest apart counts.
  void AddWorst(std::string name, const Comparison& c, size_t pair, uint32_t row) {
    const auto at = places_.find(name);
    if (at == places_.end()) {
      const size_t place = points_.size();
      Add(name, c, pair, row);
      if (points_.size() > place) places_.emplace(std::move(name), place);
      return;
    }
    Points one;
    one.Add(std::move(name), c, pair, row);
    if (!one.empty() && Worse(one.points_[0].cell, points_[at->second].cell))
      points_[at->second].cell = one.points_[0].cell;
  }
  bool empty() const { return points_.empty(); }
  std::vector<TrendPoint> Take() { return std::move(points_); }

 private:
  static bool Worse(const TrendCell& a, const TrendCell& b) {
    constexpr auto kDiffers = static_cast<uint8_t>(compare::RowVerdict::kDiffers);
    if ((a.verdict == kDiffers) != (b.verdict == kDiffers)) return a.verdict == kDiffers;
    return a.apart > b.apart || (std::isnan(b.apart) && !std::isnan(a.apart));
  }
  std::vector<TrendPoint> points_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, size_t> places_;
};

// "layers.0.mlp" of "Module.layers.0.mlp.LlamaMLP"; "model" of the model itself.
std::string ModulePath(std::string_view api) {
  const size_t begin = api.find('.'), end = api.rfind('.');
  return begin == api.npos || begin == end ? std::string("model")
                                           : std::string(api.substr(begin + 1, end - begin - 1));
}

// The numbers from which the backward passes of one side begin, in their order: leaves of one
// element. A pass begins where a backward call follows a call that is none.
std::vector<int32_t> LossesOf(const Comparison& c, bool target) {
  const Dump& dump = target ? c.target : c.golden;
  const auto record_of = [&](int32_t p) { return target ? c.pairs[p].target : c.pairs[p].golden; };
  std::vector<int32_t> pair_of(dump.records.size(), -1), losses;
  for (size_t p = 0; p < c.forward_of.size(); ++p) {
    const int32_t record = record_of(static_cast<int32_t>(p));
    if (record >= 0) pair_of[record] = static_cast<int32_t>(p);
  }
  bool inside = false;  // of a backward pass
  for (size_t r = 0; r < dump.records.size(); ++r) {
    const Direction direction = dump.records[r].direction;
    const bool begins = !inside && direction == Direction::kBackward && pair_of[r] >= 0;
    inside = direction == Direction::kBackward || direction == Direction::kParameterGrad;
    const int32_t forward = begins ? c.forward_of[pair_of[r]] : -1;
    if (forward < 0 || record_of(forward) < 0) continue;
    int32_t loss = -1, outputs = 0;
    const Record& record = dump.records[record_of(forward)];
    for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
      const Leaf& leaf = dump.leaves[i];
      if (leaf.slot != Slot::kOutput) continue;
      ++outputs;
      if (leaf.has_stats && leaf.shape.elements() == 1) loss = static_cast<int32_t>(i);
    }
    if (loss >= 0 && outputs == 1) losses.push_back(loss);
  }
  return losses;
}

std::vector<TrendPoint> LossPoints(const Comparison& c) {
  const std::vector<int32_t> target = LossesOf(c, true), golden = LossesOf(c, false);
  std::vector<TrendPoint> points;
  for (size_t k = 0; k < std::max(target.size(), golden.size()); ++k) {
    TrendPoint& point = points.emplace_back();
    point.name = k == 0 ? "loss" : fmt::format("loss {}", k + 1);
    if (k < target.size() && k < golden.size())
      point.cell.verdict = static_cast<uint8_t>(compare::RowVerdict::kUnknown);
    if (k < target.size())
      point.cell.target_norm = static_cast<float>(c.target.leaves[target[k]].mean_value);
    if (k < golden.size())
      point.cell.golden_norm = static_cast<float>(c.golden.leaves[golden[k]].mean_value);
  }
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const compare::RecordPair& pair = c.pairs[p];
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      const auto at = std::find(target.begin(), target.end(), c.rows[row].target);
      if (c.rows[row].target < 0 || at == target.end()) continue;
      TrendCell& cell = points[at - target.begin()].cell;
      cell.call = static_cast<int32_t>(p);
      const size_t k = at - target.begin();
      if (k >= golden.size() || c.rows[row].golden != golden[k]) continue;
      cell.apart = static_cast<float>(c.measures[row].severity);
      cell.verdict = static_cast<uint8_t>(c.measures[row].verdict);
    }
  }
  return points;
}

// As page/trends.js knows them, in the order of TrendMeasure.
constexpr std::string_view kMeasures[] = {"roundings", "share", "value", "norm"};

// Takes a prefix away; whether it was there.
bool Without(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Points of one comparison, by where they come from.
class PointScan {
 public:
  explicit PointScan(const Comparison& c) : c_(c) {}

  ParameterPoints Take() {
    compare::PageRelease pages(c_.target, c_.golden);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      pages.RowsDone(c_.pairs[p].row_count);
      if (c_.pairs[p].matched()) AddCall(p);
    }
    return {.weights = (of_modules_.empty() ? optimizer_weights_ : of_modules_).Take(),
            .gradients = (of_gradients_.empty() ? optimizer_gradients_ : of_gradients_).Take(),
            .outputs = (of_layers_.empty() ? of_apis_ : of_layers_).Take(),
            .losses = LossPoints(c_)};
  }

 private:
  void AddCall(size_t p) {
    const compare::RecordPair& pair = c_.pairs[p];
    const Record& record = c_.target.records[pair.target];
    const bool optimizer = compare::IsOptimizerCall(record.api);
    if (record.direction == Direction::kForward && !optimizer) AddOutputs(record, p);
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      if (optimizer) {
        AddOfOptimizer(p, row);
      } else if (record.is_module) {
        AddOfModule(record, p, row);
      }
    }
  }

  void AddOutputs(const Record& record, size_t p) {
    const compare::RecordPair& pair = c_.pairs[p];
    Points& layers = record.is_module ? of_layers_ : of_apis_;
    const std::string layer =
        record.is_module ? ModulePath(record.api) : fmt::format("{}.{}", record.api, record.call);
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      const int32_t leaf = c_.rows[row].target;
      if (leaf >= 0 && c_.target.leaves[leaf].slot == Slot::kOutput)
        layers.AddWorst(layer, c_, p, row);
    }
  }

  void AddOfOptimizer(size_t p, uint32_t row) {
    std::string_view path = compare::LeafPath(c_, static_cast<int32_t>(row));
    if (Without("input.weights.", &path)) optimizer_weights_.Add(std::string(path), c_, p, row);
    if (Without("input.gradients.", &path)) optimizer_gradients_.Add(std::string(path), c_, p, row);
  }

  void AddOfModule(const Record& record, size_t p, uint32_t row) {
    std::string_view path = compare::LeafPath(c_, static_cast<int32_t>(row));
    if (record.direction == Direction::kParameterGrad) {
      of_gradients_.Add(ParameterName(record.api, path), c_, p, row);
    } else if (record.direction == Direction::kForward && Without("parameters.", &path)) {
      of_modules_.Add(ParameterName(record.api, path), c_, p, row);
    }
  }

  const Comparison& c_;
  Points of_modules_, of_gradients_, optimizer_weights_, optimizer_gradients_;
  Points of_layers_, of_apis_;
};

}  // namespace

ParameterPoints PointsOf(const Comparison& c) { return PointScan(c).Take(); }

Trend::Trend(TrendTitle title, std::vector<int64_t> steps, std::vector<int64_t> ranks)
    : title_(std::move(title)), steps_(std::move(steps)), ranks_(std::move(ranks)) {
  parts_.assign(Cells(), -1);
}

uint32_t Trend::Announce(std::string_view name, size_t step, size_t rank, float apart,
                         uint64_t order) {
  const auto [at, is_new] =
      rows_.try_emplace(std::string(name), static_cast<uint32_t>(parameters_.size()));
  const uint32_t row = at->second;
  if (is_new) parameters_.push_back({&at->first, -1, order});
  Parameter& parameter = parameters_[row];
  if (apart > parameter.worst) parameter.worst = apart;
  parameter.order = std::min(parameter.order, order);
  if (drawn_) return row;
  first_steps_.resize(parameters_.size() * ranks_.size(), -1);
  int32_t& first = first_steps_[row * ranks_.size() + rank];
  drawn_ = first >= 0 && first != static_cast<int32_t>(step);
  if (first < 0) first = static_cast<int32_t>(step);
  if (drawn_) first_steps_ = {};
  return row;
}

void Trend::Choose() {
  const auto before = [&](uint32_t a, uint32_t b) {
    return parameters_[a].order < parameters_[b].order;
  };
  kept_.resize(parameters_.size());
  std::iota(kept_.begin(), kept_.end(), 0);
  std::sort(kept_.begin(), kept_.end(), before);
  const size_t most = std::max<size_t>(1, kMostTrendCells / std::max<size_t>(1, Cells()));
  if (kept_.size() > most) {
    std::stable_sort(kept_.begin(), kept_.end(), [&](uint32_t a, uint32_t b) {
      return parameters_[a].worst > parameters_[b].worst;
    });
    kept_.resize(most);
    std::sort(kept_.begin(), kept_.end(), before);
  }
  places_.assign(parameters_.size(), kNotKept);
  for (size_t i = 0; i < kept_.size(); ++i) places_[kept_[i]] = static_cast<uint32_t>(i);
  cells_.assign(kept_.size() * Cells(), {});
}

void Trend::Set(uint32_t row, size_t step, size_t rank, const TrendCell& cell) {
  if (places_[row] == kNotKept) return;
  cells_[places_[row] * Cells() + rank * steps_.size() + step] = cell;
}

void Trend::AppendHead(std::string* json) const {
  *json += "{\"title\":";
  AppendJsonString(json, title_.title);
  *json += fmt::format(",\"measure\":\"{}\",\"steps\":[{}],\"ranks\":[{}],\"parts\":[{}],",
                       kMeasures[static_cast<size_t>(title_.measure)], fmt::join(steps_, ","),
                       fmt::join(ranks_, ","), fmt::join(parts_, ","));
  *json += fmt::format("\"parameters\":{},\"names\":[", parameters_.size());
  for (const uint32_t row : kept_) {
    if (json->back() != '[') *json += ',';
    AppendJsonString(json, *parameters_[row].name);
  }
  *json += "]}";
}

void Trend::AppendColumns(std::string_view id, PageText* html) const {
  const auto column = [&](std::string_view name, std::string_view type, auto member, auto zero) {
    std::vector<decltype(zero)> numbers;
    numbers.reserve(cells_.size());
    for (const TrendCell& cell : cells_)
      numbers.push_back(static_cast<decltype(zero)>(cell.*member));
    AppendColumn<decltype(zero)>(fmt::format("{}-{}", id, name), type, numbers, html);
  };
  column("target", "f32", &TrendCell::target_norm, 0.0F);
  column("golden", "f32", &TrendCell::golden_norm, 0.0F);
  column("apart", "f32", &TrendCell::apart, 0.0F);
  column("verdict", "u8", &TrendCell::verdict, uint8_t{0});
  column("call", "u32", &TrendCell::call, uint32_t{0});
}

void AppendTrends(std::span<const Trend> trends, PageText* html) {
  std::string head;
  size_t drawn = 0;
  for (const Trend& trend : trends) {
    if (!trend.IsDrawn()) continue;
    head += drawn == 0 ? "[" : ",";
    trend.AppendHead(&head);
    trend.AppendColumns(fmt::format("t{}", drawn++), html);
  }
  if (drawn > 0) AppendText("trends", head + "]", html);
}

}  // namespace msprobe::report_page
