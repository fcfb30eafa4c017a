#include "engine/report_page/trends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "engine/base/messages/message.h"
#include "engine/report_page/gradient_page.h"
#include "engine/report_page/parameter_trends.h"
#include "engine/report_page/report_page.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::report_page {
namespace {

using compare::Comparison;
using compare::RowVerdict;
using compare::test::DumpBuilder;
using compare::test::MustCompare;
using compare::test::Numbers;
using compare::test::Scaled;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string WholeTrends(const PageText& page) {
  std::string whole;
  for (const std::string& piece : page) whole += piece;
  return whole;
}

// A step in which the gradient of "fc.bias" is wrong by the relative error `by`.
Comparison Step(double by) {
  DumpBuilder target, golden;
  for (const bool wrong : {true, false}) {
    DumpBuilder& b = wrong ? target : golden;
    b.Call("Module.module.fc.Linear.forward.0")
        .In(Numbers(9, -9, 0, 20))
        .Parameter("weight", Numbers(1, -1, 0, 5))
        .Parameter("bias", Numbers(2, -2, 0, 6))
        .Out(Numbers(3, -3, 0, 7));
    // The weight that a second call uses is the same one.
    b.Call("Module.module.fc.Linear.forward.1").Parameter("weight", Numbers(1, -1, 0, 99));
    b.Call("Module.module.fc.Linear.parameters_grad.0")
        .Grad("weight", Numbers(4, -4, 0, 8))
        .Grad("bias", Scaled(Numbers(5, -5, 0, 10), wrong ? by : 0));
    b.Call("Torch.mul.0.forward").In(Numbers(1, -1, 0, 5));
  }
  return MustCompare(target.Take(), golden.Take());
}

TEST(ParameterPoints, AreTheParametersOfModulesAndTheirGradients) {
  const ParameterPoints points = PointsOf(Step(0.1));
  EXPECT_THAT(points.weights, ElementsAre(Field(&TrendPoint::name, "fc.weight"),
                                          Field(&TrendPoint::name, "fc.bias")));
  EXPECT_EQ(points.weights[0].cell.target_norm, 5);
  EXPECT_EQ(points.weights[0].cell.verdict, static_cast<uint8_t>(RowVerdict::kEqual));
  EXPECT_EQ(points.weights[0].cell.call, 0);
  ASSERT_EQ(points.gradients.size(), 2u);
  EXPECT_EQ(points.gradients[1].name, "fc.bias");
  EXPECT_FLOAT_EQ(points.gradients[1].cell.target_norm, 11);
  EXPECT_EQ(points.gradients[1].cell.golden_norm, 10);
  EXPECT_EQ(points.gradients[1].cell.verdict, static_cast<uint8_t>(RowVerdict::kDiffers));
  EXPECT_GT(points.gradients[1].cell.apart, 1e4F);
  EXPECT_EQ(points.gradients[1].cell.call, 2);
}

TEST(ParameterPoints, AreThoseOfOptimizersWhereNoModuleHasAny) {
  DumpBuilder target, golden;
  for (DumpBuilder* b : {&target, &golden}) {
    b->Call("Optimizer.SGD.step.0.forward")
        .Kwarg("weights.fc.weight", Numbers(1, -1, 0, 5))
        .Kwarg("gradients.fc.weight", Numbers(1, -1, 0, 3))
        .Kwarg("lr", Numbers(1, 1, 1, 1));
  }
  const ParameterPoints points = PointsOf(MustCompare(target.Take(), golden.Take()));
  EXPECT_THAT(points.weights, ElementsAre(Field(&TrendPoint::name, "fc.weight")));
  EXPECT_THAT(points.gradients,
              ElementsAre(Field(&TrendPoint::cell, Field(&TrendCell::golden_norm, 3.0F))));
}

TEST(ParameterPoints, NeedBothSides) {
  DumpBuilder target, golden;
  target.Call("Module.fc.Linear.forward.0").Parameter("weight", Numbers(1, -1, 0, 5));
  golden.Call("Module.fc.Linear.forward.0").Out(Numbers(1, -1, 0, 5));
  EXPECT_THAT(PointsOf(MustCompare(target.Take(), golden.Take())).weights, IsEmpty());
}

TEST(ParameterPoints, OutputsAreThoseOfLayersAndTheWorstCallOfEach) {
  DumpBuilder target, golden;
  for (const bool wrong : {true, false}) {
    DumpBuilder& b = wrong ? target : golden;
    b.Call("Functional.linear.0.forward").Out(Numbers(9, -9, 0, 20));
    b.Call("Module.layers.0.mlp.MLP.forward.0").Out(Numbers(1, -1, 0, 3));
    b.Call("Module.layers.0.mlp.MLP.forward.1")
        .Out(Numbers(1, -1, 0, 3))
        .Out(Scaled(Numbers(2, -2, 0, 4), wrong ? 0.1 : 0));
    b.Call("Module.Net.forward.0").Out(Numbers(4, -4, 0, 5));
  }
  const ParameterPoints points = PointsOf(MustCompare(target.Take(), golden.Take()));
  EXPECT_THAT(points.outputs, ElementsAre(Field(&TrendPoint::name, "layers.0.mlp"),
                                          Field(&TrendPoint::name, "model")));
  const TrendCell& cell = points.outputs[0].cell;
  EXPECT_EQ(cell.verdict, static_cast<uint8_t>(RowVerdict::kDiffers));
  EXPECT_EQ(cell.call, 2);
  EXPECT_EQ(cell.golden_norm, 4);
}

TEST(ParameterPoints, OutputsOfApisStandForThoseOfModules) {
  DumpBuilder target, golden;
  for (DumpBuilder* b : {&target, &golden}) {
    b->Call("Functional.linear.0.forward").Out(Numbers(9, -9, 0, 20));
    b->Call("Functional.linear.1.forward").Out(Numbers(8, -8, 0, 20));
  }
  EXPECT_THAT(PointsOf(MustCompare(target.Take(), golden.Take())).outputs,
              ElementsAre(Field(&TrendPoint::name, "Functional.linear.0"),
                          Field(&TrendPoint::name, "Functional.linear.1")));
}

// Forward and backward of a model with the loss `value`, which the call `root` makes of mse_loss.
void AddPass(DumpBuilder* b, const std::string& root, int number, double value) {
  const std::string n = std::to_string(number);
  b->Call("Functional.linear." + n + ".forward").Out(Numbers(9, -9, 0, 20));
  b->Call("Functional.mse_loss." + n + ".forward").Out(Numbers(5, 5, 5, 5).Shape("[]"));
  b->Call(root + "." + n + ".forward").Out(Numbers(value, value, value, value).Shape("[]"));
  b->Call(root + "." + n + ".backward").Out(Numbers(1, 1, 1, 1).Shape("[]"));
  b->Call("Functional.mse_loss." + n + ".backward").Out(Numbers(2, -2, 0, 3));
  b->Call("Functional.linear." + n + ".backward").Out(Numbers(3, -3, 0, 4));
}

TEST(ParameterPoints, ALossIsTheRootOfAPassBackwards) {
  DumpBuilder target, golden;
  for (const int pass : {0, 1}) {
    AddPass(&target, "Tensor.__mul__", pass, 7.5);
    AddPass(&golden, pass == 0 ? "Tensor.__mul__" : "Tensor.__truediv__", pass, 7);
  }
  const ParameterPoints points = PointsOf(MustCompare(target.Take(), golden.Take()));
  ASSERT_THAT(points.losses,
              ElementsAre(Field(&TrendPoint::name, "loss"), Field(&TrendPoint::name, "loss 2")));
  const TrendCell& first = points.losses[0].cell;
  EXPECT_EQ(first.target_norm, 7.5F);
  EXPECT_EQ(first.golden_norm, 7.0F);
  EXPECT_EQ(first.verdict, static_cast<uint8_t>(RowVerdict::kDiffers));
  EXPECT_EQ(first.call, 2);
  // The golden makes its second loss by another call.
  const TrendCell& second = points.losses[1].cell;
  EXPECT_EQ(second.target_norm, 7.5F);
  EXPECT_EQ(second.golden_norm, 7.0F);
}

// A page takes NaN of such a cell for the value of the loss, and of another one for no record.
TEST(ParameterPoints, ALossOfOneSideAloneIsNotRecordedOnBoth) {
  DumpBuilder target, golden;
  AddPass(&target, "Tensor.__mul__", 0, std::nan(""));
  AddPass(&target, "Tensor.__mul__", 1, 7);
  AddPass(&golden, "Tensor.__mul__", 0, 7);
  const ParameterPoints points = PointsOf(MustCompare(target.Take(), golden.Take()));
  ASSERT_EQ(points.losses.size(), 2u);
  EXPECT_NE(points.losses[0].cell.verdict, TrendCell::kNothing);
  EXPECT_TRUE(std::isnan(points.losses[0].cell.target_norm));
  EXPECT_EQ(points.losses[1].cell.verdict, TrendCell::kNothing);
}

TEST(ParameterPoints, WithoutABackwardPassThereIsNoLoss) {
  EXPECT_THAT(PointsOf(Step(0)).losses, IsEmpty());
}

// Parameters p0, p1, ... of rank 3, in the first `filled_steps`; p<n> is n % 1000 roundings apart.
Trend TrendOf(size_t steps, size_t parameters, size_t filled_steps) {
  std::vector<int64_t> numbers(steps);
  for (size_t i = 0; i < steps; ++i) numbers[i] = static_cast<int64_t>(10 * i);
  Trend trend({.title = "weights"}, numbers, {0, 3});
  for (const bool choosing : {true, false}) {
    for (size_t p = 0; p < parameters; ++p) {
      const std::string name = "p" + std::to_string(p);
      const float apart = static_cast<float>(p % 1000);
      for (size_t step = 0; step < filled_steps; ++step) {
        choosing ? void(trend.Announce(name, step, 1, apart, p))
                 : trend.Set(trend.RowOf(name), step, 1, {.apart = apart, .verdict = 0});
      }
    }
    if (choosing) trend.Choose();
  }
  return trend;
}

TEST(Trend, OfOneStepIsNotDrawn) {
  PageText html;
  AppendTrends(std::vector<Trend>{TrendOf(3, 2, 1)}, &html);
  EXPECT_THAT(html, IsEmpty());
  AppendTrends(std::vector<Trend>{TrendOf(3, 2, 2)}, &html);
  EXPECT_THAT(WholeTrends(html), HasSubstr("id=\"trends\""));
  // Five columns of 2 parameters, 2 ranks, 3 steps.
  EXPECT_THAT(WholeTrends(html), HasSubstr("id=\"t0-apart\" data-type=\"f32\" data-size=\"48\""));
  EXPECT_THAT(WholeTrends(html), HasSubstr("id=\"t0-verdict\" data-type=\"u8\" data-size=\"12\""));
}

TEST(Trend, OfTooManyParametersKeepsThoseFurthestApart) {
  PageText html;
  const size_t parameters = kMostTrendCells / (2 * 100) + 500;  // 2 ranks, 100 steps
  AppendTrends(std::vector<Trend>{TrendOf(100, parameters, 2)}, &html);
  const size_t kept = kMostTrendCells / 200;
  EXPECT_THAT(WholeTrends(html), HasSubstr("id=\"t0-verdict\" data-type=\"u8\" data-size=\"" +
                                           std::to_string(kept * 200) + "\""));
}

// The gradients of two ranks in one step; "late" is far apart in the last of 100 steps only.
ParameterPoints ManyPoints(size_t step, size_t parameters) {
  ParameterPoints points;
  for (size_t p = 0; p < parameters; ++p) {
    const float apart = p == 7 ? (step == 99 ? 1e6F : 0) : static_cast<float>(p + step);
    points.gradients.push_back({.name = p == 7 ? "late" : "p" + std::to_string(p),
                                .cell = {.target_norm = static_cast<float>(step),
                                         .apart = apart,
                                         .call = static_cast<int32_t>(p),
                                         .verdict = 0}});
  }
  return points;
}

std::string TrendsOf(const TemporaryFolder& folder, size_t parameters, bool backward) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t step = 0; step < 100; ++step) {
    for (const int64_t rank : {0, 1}) pairs.emplace_back(step, rank);
  }
  ParameterTrends trends(pairs, folder.path());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const size_t pair = backward ? pairs.size() - 1 - i : i;
    // In step 1 the parameters come in another order.
    ParameterPoints points = ManyPoints(pair / 2, parameters);
    if (pair / 2 == 1) std::reverse(points.gradients.begin(), points.gradients.end());
    EXPECT_TRUE(trends.Add(pair, points).ok());
  }
  Result<PageText> html = trends.Html();
  EXPECT_TRUE(html.ok()) << html.status().ToString();
  return WholeTrends(*html);
}

TEST(ParameterTrends, OfMorePointsThanStayInMemoryAreComplete) {
  constexpr size_t kParameters = 2500;  // 500,000 points
  static_assert(kParameters * 200 > kMostTrendCells);
  std::vector<int64_t> steps(100);
  std::iota(steps.begin(), steps.end(), 0);
  Trend expected({.title = "gradients"}, steps, {0, 1});
  for (const bool choosing : {true, false}) {
    for (size_t step = 0; step < steps.size(); ++step) {
      for (const size_t rank : {0, 1}) {
        if (choosing) expected.SetPart(step, rank, static_cast<int32_t>(2 * step + rank));
        uint64_t order = 0;
        for (const TrendPoint& p : ManyPoints(step, kParameters).gradients) {
          choosing ? void(expected.Announce(p.name, step, rank, p.cell.apart, order++))
                   : expected.Set(expected.RowOf(p.name), step, rank, p.cell);
        }
      }
    }
    if (choosing) expected.Choose();
  }
  PageText html;
  AppendTrends({&expected, 1}, &html);
  const TemporaryFolder folder;
  EXPECT_TRUE(TrendsOf(folder, kParameters, false) == WholeTrends(html));
  EXPECT_TRUE(TrendsOf(folder, kParameters, true) == WholeTrends(html));
}

std::string PageOfSteps(const std::deque<Comparison>& steps) {
  std::vector<compare::RankResult> results;
  std::vector<PagePart> parts;
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < steps.size(); ++i) pairs.emplace_back(i, 0);
  ParameterTrends trends(pairs, "");
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto step = static_cast<int32_t>(i);
    results.push_back(compare::SummarizeRank(steps[i], step, 0));
    parts.push_back(PartOf(steps[i], {.index = i, .step = step, .rank = 0}));
    EXPECT_TRUE(trends.Add(i, steps[i]).ok());
  }
  return WholeTrends(
      ComparisonPage(results, {"runs/new", "runs/good", {}}, parts, trends.Html().value()));
}

TEST(ReportPage, OfSeveralStepsHasTrends) {
  std::deque<Comparison> steps;
  steps.push_back(Step(0));
  EXPECT_THAT(PageOfSteps(steps), Not(HasSubstr("id=\"trends\"")));
  steps.push_back(Step(0.1));
  const std::string html = PageOfSteps(steps);
  EXPECT_THAT(html, HasSubstr("id=\"trends\""));
  EXPECT_THAT(html, HasSubstr("id=\"t1-target\" data-type=\"f32\" data-size=\"16\""));
}

TEST(GradientPage, SaysTheFallWithoutJavaScript) {
  gradients::GradientComparison c;
  c.ranks.push_back({.rank = 0, .steps = {0, 7}, .summary = {{9, 9}, {4, 9}}, .parameters = 1});
  c.all = gradients::SimilarityTable({0, 7});
  const std::string hostile = "<script>alert(1)</script>&\"";
  c.all.At(c.all.Row(hostile), 0) = {.same = 9, .count = 9, .target_norm = 2, .golden_norm = 2};
  c.all.At(0, 1) = {.same = 4, .count = 9, .target_norm = 2, .golden_norm = 3};
  c.fall = gradients::GradientFall{.step = 7,
                                   .parameter = hostile,
                                   .before = 1.0,
                                   .similarity = 0.444,
                                   .changed = 5,
                                   .count = 9};
  c.notes = {"<b>note"_t};
  const std::string html = WholeTrends(GradientPage(c, hostile, "golden"));
  EXPECT_THAT(html, HasSubstr("FALLS in step 7"));
  EXPECT_THAT(
      html,
      HasSubstr("<h1 translate=\"no\">&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;</h1>"));
  EXPECT_THAT(html, HasSubstr("1 before, now 0.444: 5 of 9 elements point elsewhere."));
  // The page opens at the cell that the banner names.
  EXPECT_THAT(html, HasSubstr("data-parameter=\"&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;\" "
                              "data-step=\"7\" data-rank=\"-1\""));
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;note"));
  EXPECT_THAT(html, HasSubstr("id=\"t0-apart\" data-type=\"f32\" data-size=\"8\""));
  EXPECT_THAT(html, HasSubstr("id=\"t1-apart\" data-type=\"f32\" data-size=\"8\""));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
}

TEST(GradientPage, OfGradientsThatMayBeRoundingOpensAtTheFirst) {
  gradients::GradientComparison c;
  c.all = gradients::SimilarityTable({3, 4});
  c.all.At(c.all.Row("embed.weight"), 0) = {.same = 9, .count = 9};
  c.all.At(0, 1) = {.same = 5, .count = 9};
  c.first_difference = gradients::GradientFall{.step = 3, .parameter = "norm.weight"};
  c.may_be_rounding = {"embed.weight"};
  const std::string html = WholeTrends(GradientPage(c, "a", "b"));
  EXPECT_THAT(html, HasSubstr("UNKNOWN: rounding, nothing else falls"));
  EXPECT_THAT(html, HasSubstr("data-parameter=\"embed.weight\" data-step=\"4\""));
}

TEST(GradientPage, OfEqualDirections) {
  gradients::GradientComparison c;
  c.all = gradients::SimilarityTable({0});
  EXPECT_THAT(WholeTrends(GradientPage(c, "a", "b")), HasSubstr("All directions are the same."));
}

}  // namespace
}  // namespace msprobe::report_page
