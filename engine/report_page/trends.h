// How large weights, gradients and outputs are over the steps of two runs, and how far the runs are
// apart: the charts and the strip of cells "Over the steps" of a page, and the curve of the loss.
// However many points there are, memory is needed for the names and for the cells that the page
// holds.
//
//   Trend trend({.title = "weights", .measure = TrendMeasure::kRoundings}, {0, 1}, {-1});
//   for (const TrendPoint& p : points) trend.Announce(p.name, 0, 0, p.cell.apart, order++);
//   trend.Choose();
//   for (const TrendPoint& p : points) trend.Set(trend.RowOf(p.name), 0, 0, p.cell);
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

// A page holds this many cells of a trend: of more, those parameters that are furthest apart, and
// the page says so.
inline constexpr size_t kMostTrendCells = 400'000;

// A parameter, its gradient, the output of a layer, or a loss, in one step of one rank.
struct TrendCell {
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  static constexpr uint8_t kNothing = 255;
  float target_norm = kNaN, golden_norm = kNaN;  // NaN: not recorded; of a loss its value
  float apart = kNaN;                            // in the measure of its trend; NaN: not known
  int32_t call = -1;                             // its pair of calls in the comparison; -1: none
  uint8_t verdict = kNothing;  // a compare::RowVerdict; kNothing: not recorded on both sides
};

struct TrendPoint {
  std::string name;  // "layers.0.fc.weight"
  TrendCell cell;
};

struct ParameterPoints {
  // Weights: as modules used them first, else as an optimizer got them. Gradients: what a module's
  // parameters got, else what an optimizer got. Each parameter once, in the order of the dump.
  std::vector<TrendPoint> weights, gradients;
  // Of the layers, in the order of their calls: of each module the output that is furthest apart;
  // without records of modules those of the APIs.
  std::vector<TrendPoint> outputs;
  // "loss", "loss 2", ...: the numbers from which the backward passes of the step begin.
  std::vector<TrendPoint> losses;
};

// Of what both runs recorded.
ParameterPoints PointsOf(const compare::Comparison& comparison);

enum class TrendMeasure : uint8_t {
  kRoundings,  // `apart` is Measure::severity
  kShare,      // `apart` is the share of elements that point elsewhere, 0 to 1
  kValue,      // as kRoundings, and the numbers of both sides are values, not norms
  kNorm,       // of one run: `apart` is the norm, infinite where the values are not finite
};

struct TrendTitle {
  std::string title;  // "weights"
  TrendMeasure measure = TrendMeasure::kRoundings;
};

// Parameters x steps, for each rank. Every point is given twice: Announce says which there are;
// Choose decides which parameters the page shows; Set fills their cells.
class Trend {
 public:
  // `ranks` and `steps`: their numbers, ascending; a rank without a number is -1.
  Trend(TrendTitle title, std::vector<int64_t> steps, std::vector<int64_t> ranks);
  // `step` and `rank`: indexes. `order`: parameters are shown in ascending order of the smallest
  // that was given. Returns the parameter's row, for Set.
  uint32_t Announce(std::string_view name, size_t step, size_t rank, float apart, uint64_t order);
  // Of too many parameters those are kept that are furthest apart.
  void Choose();
  // After Choose. A parameter that is not kept is left out.
  void Set(uint32_t row, size_t step, size_t rank, const TrendCell& cell);
  // `part`: of the page, with the calls of the cells; -1: none.
  void SetPart(size_t step, size_t rank, int32_t part) {
    parts_[rank * steps_.size() + step] = part;
  }
  // A parameter in two steps at least: else the calls of the page say all. A page of gradients has
  // no calls, and is drawn with one step, too.
  bool IsDrawn() const { return drawn_ || (!HasCalls() && !parameters_.empty()); }
  uint32_t RowOf(const std::string& name) const { return rows_.at(name); }

 private:
  friend void AppendTrends(std::span<const Trend> trends, PageText* html);
  struct Parameter {
    const std::string* name;
    float worst;     // how far it is apart; -1: not known
    uint64_t order;  // the smallest
  };

  bool HasCalls() const {
    return title_.measure == TrendMeasure::kRoundings || title_.measure == TrendMeasure::kValue;
  }
  size_t Cells() const { return steps_.size() * ranks_.size(); }  // of a parameter
  void AppendHead(std::string* json) const;
  void AppendColumns(std::string_view id, PageText* html) const;

  TrendTitle title_;
  std::vector<int64_t> steps_, ranks_;
  std::vector<int32_t> parts_;
  std::unordered_map<std::string, uint32_t> rows_;
  std::vector<Parameter> parameters_;  // by row
  bool drawn_ = false;
  std::vector<int32_t> first_steps_;  // [row][rank], -1: none; until a trend is drawn
  std::vector<uint32_t> kept_;        // rows, in their order
  std::vector<uint32_t> places_;      // of each row in kept_
  std::vector<TrendCell> cells_;      // [place][rank][step]
};

// The elements "trends" and "t<k>-<column>"; nothing if no trend is drawn.
void AppendTrends(std::span<const Trend> trends, PageText* html);

}  // namespace msprobe::report_page
