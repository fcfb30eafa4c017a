// How large weights and gradients are over the steps of two runs, and how far the runs are apart: the
// charts and the strip of cells "Parameters over steps" of a page.
//
//   const ParameterPoints points = PointsOf(comparison);      // of each step; then it can be freed
//   Trend trend({.title = "weights", .measure = TrendMeasure::kRoundings}, {0, 1}, {-1});
//   for (const TrendPoint& point : points.weights) trend.Add(0, 0, point);
//   AppendTrends({&trend, 1}, &html);
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

// A parameter, or its gradient, in one step of one rank.
struct TrendPoint {
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::string name;                              // "layers.0.fc.weight"
  float target_norm = kNaN, golden_norm = kNaN;  // NaN: not recorded
  float apart = kNaN;                            // in the measure of its trend; NaN: not known
  compare::RowVerdict verdict = compare::RowVerdict::kUnknown;
  int32_t call = -1;  // its pair of calls in the comparison; -1: none
};

struct ParameterPoints {
  // Weights: as modules used them first, else as an optimizer got them. Gradients: what a module's
  // parameters got, else what an optimizer got. Each parameter once, in the order of the dump.
  std::vector<TrendPoint> weights, gradients;
};

// Of what both runs recorded.
ParameterPoints PointsOf(const compare::Comparison& comparison);

enum class TrendMeasure : uint8_t {
  kRoundings,  // `apart` is Measure::severity
  kShare,      // `apart` is the share of elements that point elsewhere, 0 to 1
  kNorm,       // of one run: `apart` is the norm, infinite where the values are not finite
};

struct TrendTitle {
  std::string title;  // "weights"
  TrendMeasure measure = TrendMeasure::kRoundings;
};

// Parameters x steps, for each rank.
class Trend {
 public:
  // `ranks` and `steps`: their numbers, ascending; a rank without a number is -1.
  Trend(TrendTitle title, std::vector<int64_t> steps, std::vector<int64_t> ranks);
  // `step` and `rank`: indexes. `part`: of the page, with the point's call; -1: none.
  void Add(size_t step, size_t rank, const TrendPoint& point);
  void SetPart(size_t step, size_t rank, int32_t part) {
    parts_[rank * steps_.size() + step] = part;
  }
  // A parameter in two steps at least: else the calls of the page say all. A page of gradients has no
  // calls, and is drawn with one step, too.
  bool IsDrawn() const;

 private:
  friend void AppendTrends(std::span<const Trend> trends, PageText* html);
  struct Cell {
    float target_norm = TrendPoint::kNaN, golden_norm = TrendPoint::kNaN, apart = TrendPoint::kNaN;
    uint8_t verdict = kNothing;
    int32_t call = -1;
  };
  static constexpr uint8_t kNothing = 255;

  size_t Cells() const { return steps_.size() * ranks_.size(); }  // of a parameter
  std::vector<size_t> Kept() const;
  void AppendHead(std::span<const size_t> kept, std::string* json) const;
  void AppendColumns(std::string_view id, std::span<const size_t> kept, PageText* html) const;

  TrendTitle title_;
  std::vector<int64_t> steps_, ranks_;
  std::vector<int32_t> parts_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> rows_;
  std::vector<Cell> cells_;  // [name][rank][step]
};

// A page holds this many cells of a trend: of more, those parameters that are furthest apart, and
// the page says so.
inline constexpr size_t kMostTrendCells = 400'000;

// The elements "trends" and "t<k>-<column>"; nothing if no trend is drawn.
void AppendTrends(std::span<const Trend> trends, PageText* html);

}  // namespace msprobe::report_page
