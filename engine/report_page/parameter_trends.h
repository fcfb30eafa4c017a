// Weights, gradients, outputs of layers and losses of all pairs of dumps of a comparison over its
// steps, for the page: taken pair after pair, so that a comparison can be freed as soon as it was
// added.
//
//   const std::vector<std::pair<int64_t, int64_t>> pairs = {{0, 0}, {0, 1}};   // step, rank
//   ParameterTrends trends(pairs, "out");
//   MSPROBE_RETURN_IF_ERROR(trends.Add(1, comparison));                // of step 0, rank 1
//   MSPROBE_ASSIGN_OR_RETURN(PageText text, trends.Html());            // for ComparisonPage
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"
#include "engine/report_page/spill.h"
#include "engine/report_page/trends.h"

namespace msprobe::report_page {

// Memory: the names of the parameters, and about kMostTrendCells cells of each trend; more points
// wait in files without a name in `folder`. Errors: those of Spill.
class ParameterTrends {
 public:
  // `pairs`: the step and the rank of each pair, -1 without a number; a pair is a part of the page.
  ParameterTrends(std::span<const std::pair<int64_t, int64_t>> pairs, const std::string& folder);
  // Takes what is needed of a pair; nothing where all pairs are of one step. Each pair at most
  // once. Thread-safe.
  Status Add(size_t pair, const compare::Comparison& comparison);
  Status Add(size_t pair, const ParameterPoints& points);
  // To be called once, after the last Add. Empty: nothing is there to draw.
  Result<PageText> Html();

 private:
  struct Waiting {  // a point until Html
    uint32_t row, pair;
    TrendCell cell;
  };
  Status AddTo(size_t kind, size_t pair, std::span<const TrendPoint> points);

  std::mutex mutex_;
  std::vector<std::pair<size_t, size_t>> places_;  // of each pair: indexes of its step and rank
  size_t steps_ = 0;
  std::vector<Trend> trends_;  // as ParameterPoints has them
  std::vector<Spill> points_;  // of each trend
};

}  // namespace msprobe::report_page
