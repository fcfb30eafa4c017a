// Differences between calls that had no effect, because all gradients of the step agree.
#include "engine/compare/regions/agreeing_gradients.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "engine/compare/regions/rewrites.h"
#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// Elements in the order `order`, which statistics do not show.
Tensor Edges(const std::string& order) {
  return Numbers(9, 0, 4.5, 17).DType("torch.int64").Print("edges" + order);
}
Tensor Messages(int id, const std::string& order) {
  return Value(id).Print("messages" + std::to_string(id) + order);
}

struct Graph {
  bool sorted = false;         // the target of the edges is sorted; a call more
  double gradient_error = 0;   // of the gradient that the optimizer takes
  double statistic_error = 0;  // of a running statistic that a call changes
  double sum_error = 0;        // of the sum
  double messages_error = 0;   // of the messages, and of the sum
  double update_error = 0;     // of the weight that the optimizer makes
  bool optimizer = true;
  const char* rate = "0.1";  // of the optimizer
};

// Messages along edges are added up. The order of the edges is seen in the messages only: they are
// taken by indexing, which is not recorded.
Dump AddUp(const Graph& graph) {
  const std::string order = graph.sorted ? "sorted" : "";
  const double by = graph.messages_error, sum_by = graph.sum_error + by;
  DumpBuilder b;
  if (graph.sorted) b.Call("Tensor.argsort.0.forward").In(Edges("")).Out(Edges("order"));
  b.Call("Tensor.__mul__.0.forward").In(Scaled(Messages(1, order), by)).In(Value(2));
  b.Out(Scaled(Messages(3, order), by));
  b.Call("Tensor.expand_as.0.forward").In(Edges("row" + order)).In(Scaled(Messages(3, order), by));
  b.Out(Edges("rows" + order));
  b.Call("Tensor.scatter_add.0.forward").In(Value(4)).In(Edges("rows" + order));
  b.In(Scaled(Messages(3, order), by)).Out(Value(5, sum_by));
  b.Call("Functional.batch_norm.0.forward").In(Value(5, sum_by));
  b.Out(Value(6, sum_by));
  b.Changed("input.1", Value(7, graph.statistic_error));
  b.Call("Functional.batch_norm.0.backward").In(Value(8)).Out(Value(9));
  b.Call("Tensor.scatter_add.0.backward").In(Value(9)).Out(Value(10)).Out(Messages(11, order));
  b.Call("Tensor.__mul__.0.backward").In(Messages(11, order)).Out(Messages(12, order));
  if (!graph.optimizer) return b.Take();
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(13, graph.gradient_error));
  b.Value("param_groups.0.lr", "float", graph.rate);
  b.Kwarg("weights.weight", Value(2))
      .OutAt("0.weights.weight", Value(14, graph.gradient_error + graph.update_error));
  return b.Take();
}

TEST(AgreeingGradients, AnotherOrderThatASumTakesBackIsNoFault) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(AddUp({.sorted = !swap}), AddUp({.sorted = swap}));
    EXPECT_TRUE(GradientsAgree(c));
    EXPECT_EQ(First(c), "none") << c.first.why;
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  }
}

// "As far as rounding has grown" counts in the user's limits.
TEST(AgreeingGradients, AgreeByTheLimitsOfTheUser) {
  const auto agree = [](double error, std::string_view yaml) {
    const ThresholdTable table = *ThresholdTable::Parse(yaml, "mine.yaml");
    const CompareOptions options{.thresholds = std::make_shared<ThresholdTable>(table)};
    return GradientsAgree(MustCompare(AddUp({.sorted = true, .gradient_error = error}),
                                      AddUp({.sorted = false}), options));
  };
  EXPECT_TRUE(agree(3e-5, ""));
  EXPECT_FALSE(agree(3e-5, "rounding: {float32: 10}"));
  EXPECT_FALSE(agree(2e-4, ""));
  EXPECT_TRUE(agree(2e-4, "rounding: {float32: 500}"));
}

TEST(AgreeingGradients, AnotherOrderThatReachesTheGradientsIsAFault) {
  const Comparison c =
      ByRules(AddUp({.sorted = true, .gradient_error = kWrong}), AddUp({.sorted = false}));
  EXPECT_FALSE(GradientsAgree(c));
  EXPECT_EQ(First(c), "Tensor.argsort.0.forward");
}

TEST(AgreeingGradients, WithoutGradientsEveryValueMustEndWell) {
  const Comparison c = ByRules(AddUp({.sorted = true, .optimizer = false}),
                               AddUp({.sorted = false, .optimizer = false}));
  EXPECT_FALSE(GradientsAgree(c));
  EXPECT_EQ(First(c), "none") << c.first.why;
  const Comparison wrong = ByRules(AddUp({.sorted = true, .sum_error = kWrong, .optimizer = false}),
                                   AddUp({.sorted = false, .optimizer = false}));
  EXPECT_EQ(First(wrong), "Tensor.argsort.0.forward");
}

// A running statistic has no effect on the gradients of this step, but on a later one.
TEST(AgreeingGradients, ChangedMemoryIsAFaultAllTheSame) {
  const Comparison c =
      ByRules(AddUp({.sorted = true, .statistic_error = kWrong}), AddUp({.sorted = false}));
  EXPECT_TRUE(GradientsAgree(c));
  EXPECT_NE(First(c), "none");
  // What differs in the calls between agreeing gradients had no effect.
  EXPECT_EQ(First(ByRules(AddUp({.sorted = true, .messages_error = kWrong}), AddUp({}))), "none");
  // Also where the call inherits what differs, and nothing but its memory shows it later.
  const Comparison inherited = ByRules(
      AddUp({.sorted = true, .statistic_error = kWrong, .messages_error = kWrong}), AddUp({}));
  EXPECT_TRUE(GradientsAgree(inherited));
  EXPECT_NE(First(inherited), "none");
}

// The optimizer is behind the ends: another rate is a fault, whatever is computed otherwise before.
TEST(AgreeingGradients, AnotherUpdateIsNoRewrite) {
  const Comparison c =
      ByRules(AddUp({.sorted = true, .update_error = kWrong}), AddUp({.sorted = false}));
  EXPECT_TRUE(GradientsAgree(c));
  EXPECT_EQ(First(c), "Optimizer.SGD.step.0.forward");
  // Also where it changes nothing in this step, as at the start of a schedule.
  const Comparison rate = ByRules(AddUp({.sorted = true, .rate = "0.2"}), AddUp({}));
  EXPECT_EQ(Summarize(rate).verdict, RunVerdict::kDiffers);
}

// A loss of sums that is divided, or of means: each call is made with another argument, and both
// together compute the same.
Dump Loss(bool sum, double error = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2)).Out(Value(3));
  b.Call("Functional.mse_loss.0.forward").In(Value(3)).In(Value(4));
  b.Value("reduction", "str", sum ? "sum" : "mean").Out(Value(sum ? 30 : 5));
  if (sum)
    b.Call("Tensor.__truediv__.0.forward").In(Value(30)).Value("1", "int", "8").Out(Value(5));
  if (sum) b.Call("Tensor.__truediv__.0.backward").In(Value(6)).Out(Value(7));
  b.Call("Functional.mse_loss.0.backward").In(Value(sum ? 7 : 6)).Out(Value(8, error));
  b.Call("Functional.linear.0.backward").In(Value(8, error)).Out(Value(9, error));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(10, error));
  b.Kwarg("weights.weight", Value(2)).OutAt("0.weights.weight", Value(11, error));
  return b.Take();
}

TEST(AgreeingGradients, OtherArgumentsMayComputeTheSameTogether) {
  for (const bool swap : {false, true}) {
    const Comparison c = ByRules(Loss(!swap), Loss(swap));
    EXPECT_EQ(First(c), "none") << c.first.why;
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
    EXPECT_EQ(First(ByRules(Loss(!swap, kWrong), Loss(swap))), "Functional.mse_loss.0.forward");
  }
}

// What ranks exchange are parts of weights and gradients, or what other ranks compare: no end of its
// own.
Dump Gathering(int weights, double gradient_error = 0) {
  DumpBuilder b;
  if (weights != 20) b.Call("Torch.cat.0.forward").In(Value(60)).Out(Value(weights));
  b.Call("Distributed.all_reduce.0.forward").In(Value(weights)).Out(Value(weights + 1));
  b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2)).Out(Value(3));
  b.Call("Functional.linear.0.backward").In(Value(4)).Out(Value(5));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(10, gradient_error));
  b.Kwarg("weights.weight", Value(2)).OutAt("0.weights.weight", Value(11, gradient_error));
  return b.Take();
}

TEST(AgreeingGradients, WhatRanksExchangeIsDividedOtherwise) {
  const Comparison c = ByRules(Gathering(40), Gathering(20));
  EXPECT_EQ(First(c), "none") << c.first.why;
  EXPECT_NE(First(ByRules(Gathering(40, kWrong), Gathering(20))), "none");
}

// A step of level L0, which records no optimizer. `order`: of the rows of the batch.
Dump Modules(const std::string& order, double error = 0) {
  DumpBuilder b;
  b.Call("Module.words.Embedding.forward.0").In(Edges(order)).Out(Messages(1, order));
  b.Call("Module.pool.Pool.forward.0").In(Messages(1, order)).In(Edges("pool" + order));
  b.Out(Value(2));
  b.Call("Module.pool.Pool.backward.0").In(Value(3)).Out(Messages(4, order));
  b.Call("Module.words.Embedding.parameters_grad.0").Grad("weight", Value(5, error));
  return b.Take();
}

TEST(AgreeingGradients, OfModulesAlone) {
  EXPECT_EQ(First(ByRules(Modules("a"), Modules("b"))), "none");
  const Comparison c = ByRules(Modules("a"), Modules("b", kWrong));
  EXPECT_EQ(First(c), "Module.words.Embedding.forward.0");
  EXPECT_THAT(c.first.why, HasSubstr("the same statistics, and other elements"));
}

// What one run gathers and the other does not, beside equal gradients. `written`: a call that
// changes memory, such as a moving average of the weights, in place of the gathering call.
Dump Gathered(bool gathers, bool written) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2)).Out(Value(3));
  b.Call("Functional.linear.0.backward").In(Value(4)).Out(Value(5));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(5));
  b.Kwarg("weights.weight", Value(2)).OutAt("0.weights.weight", Value(6));
  if (!gathers) return b.Take();
  b.Call(written ? "Tensor.lerp_.0.forward" : "Torch.cos.0.forward");
  b.In(Value(7)).Out(Value(8));
  return b.Take();
}

TEST(AgreeingGradients, OnlyCallsThatChangeMemoryAreComparedNowhere) {
  const Summary gathered = Summarize(ByRules(Gathered(true, false), Gathered(false, false)));
  EXPECT_EQ(gathered.calls_compared_nowhere, 0);
  EXPECT_EQ(gathered.verdict, RunVerdict::kStructure);
  const Summary written = Summarize(ByRules(Gathered(true, true), Gathered(false, true)));
  EXPECT_EQ(written.calls_compared_nowhere, 1);
  EXPECT_EQ(written.verdict, RunVerdict::kDiffers);
}

}  // namespace
}  // namespace msprobe::compare::test
