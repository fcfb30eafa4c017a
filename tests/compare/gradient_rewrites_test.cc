// Calls that differ in structure, and gradients whose sums are in no recorded call.
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "engine/compare/ranks/between_steps.h"
#include "engine/compare/regions/regions.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// Weights of the best of a softmax, or a softmax of the best, beside a mean of the probabilities.
// In the golden the gradient of the probabilities has two parts, in the target that of the logits.
// `error`: of the gradient of the logits.
Dump Router(bool softmax_first, double error = 0) {
  enum {
    kX,
    kLogits,
    kAll,
    kBest,
    kChosen,
    kMean,
    kDMean,
    kDAll,
    kDBoth,
    kDBest,
    kDChosen,
    kDLogits
  };
  const auto value = [](int id, double by = 0) { return Value(id, by); };
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(value(kX)).Out(value(kLogits));
  const auto softmax = [&] {
    b.Call("Torch.softmax.0.forward").In(value(kLogits)).Out(value(kAll));
  };
  if (softmax_first) softmax();
  b.Call("Torch.topk.0.forward").In(value(softmax_first ? kAll : kLogits));
  b.Out(value(kBest + (softmax_first ? 20 : 0)));
  if (!softmax_first) softmax();
  if (softmax_first)
    b.Call("Tensor.div.0.forward").In(value(kBest + 20)).Out(value(kChosen));
  else
    b.Call("Torch.softmax.1.forward").In(value(kBest)).Out(value(kChosen));
  b.Call("Torch.log.0.forward").In(value(kAll)).Out(value(37));
  b.Call("Torch.mean.0.forward").In(value(kAll)).Out(value(kMean));
  b.Call("Tensor.mul.0.forward").In(value(kChosen)).In(value(kMean)).Out(value(30));
  b.Call("Tensor.mul.0.backward").In(value(31)).Out(value(kDChosen)).Out(value(kDMean));
  b.Call("Torch.mean.0.backward").In(value(kDMean)).Out(value(kDAll));
  if (softmax_first)
    b.Call("Tensor.div.0.backward").In(value(kDChosen)).Out(value(32));
  else
    b.Call("Torch.softmax.1.backward").In(value(kDChosen)).Out(value(33));
  b.Call("Torch.topk.0.backward").In(value(softmax_first ? 32 : 33));
  b.Out(value(softmax_first ? 34 : 35));
  b.Call("Torch.softmax.0.backward").In(value(softmax_first ? kDBoth : kDAll));
  b.Out(value(softmax_first ? int{kDLogits} : 36, error));
  b.Call("Functional.linear.0.backward").In(value(kDLogits, error)).Out(value(40, error));
  return b.Take();
}

TEST(GradientRewrites, ASumThatDiffersIsWrong) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Router(swap, kWrong), Router(!swap));
    EXPECT_NE(c.first.pair, -1);
  }
}

// The whole batch, or two halves. `error`: of the gradient that the optimizer takes.
Dump Batches(int parts, double error = 0) {
  DumpBuilder b;
  const std::string whole = "[4, 8]", half = "[2, 8]";
  const std::string shape = parts == 1 ? whole : half;
  b.Call("Torch.cos.0.forward").In(Value(0).Shape(whole)).Out(Value(1).Shape(whole));
  b.Call("Tensor.chunk.0.forward").In(Value(1).Shape(whole));
  b.Value("chunks", "int", std::to_string(parts));
  const int first = parts == 1 ? 1 : 10;
  for (int i = 0; i < parts; ++i) b.Out(Value(first + i).Shape(shape));
  for (int i = 0; i < parts; ++i) {
    const std::string at = "." + std::to_string(i) + ".";
    const auto value = [&](int id) { return Value(first + 20 * id + i); };
    b.Call("Functional.linear" + at + "forward").In(value(0).Shape(shape));
    b.In(Value(500)).Out(value(1).Shape(shape));
    b.Call("Torch.sum" + at + "forward").In(value(1).Shape(shape)).Out(value(2).Shape("[]"));
    b.Call("Torch.sum" + at + "backward").In(Value(501).Shape("[]")).Out(value(3).Shape(shape));
    b.Call("Functional.linear" + at + "backward").In(value(3).Shape(shape));
    b.Out(value(4).Shape(shape)).Out(value(5));
  }
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(503, error));
  b.Kwarg("weights.weight", Value(500)).OutAt("0.weights.weight", Value(504, error));
  return b.Take();
}

TEST(GradientRewrites, AnotherNumberOfPartsOfABatch) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Batches(swap ? 1 : 2), Batches(swap ? 2 : 1));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  }
}

TEST(GradientRewrites, PartsOfABatchWithAnotherSumAreWrong) {
  const Comparison c = MustCompare(Batches(1, kWrong), Batches(2));
  EXPECT_EQ(First(c), "Tensor.chunk.0.forward");
}

// One weight that is used twice, or a copy of it: the optimizer takes other gradients.
Dump Tied(bool tied) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(0)).In(Value(1)).Out(Value(2));
  b.Call("Functional.linear.0.backward").In(Value(3)).Out(Value(4)).Out(Value(5));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.words", Value(tied ? 6 : 7));
  if (!tied) b.Kwarg("gradients.head", Value(8));
  b.Kwarg("weights.words", Value(1));
  if (!tied) b.Kwarg("weights.head", Value(1));
  b.OutAt("0.weights.words", Value(9, tied ? 0 : kRounding));
  if (!tied) b.OutAt("0.weights.head", Value(10));
  return b.Take();
}

TEST(GradientRewrites, AnOptimizerThatTakesOtherGradientsIsWrong) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Tied(swap), Tied(!swap));
    EXPECT_EQ(First(c), "Optimizer.SGD.step.0.forward");
    const StepWeights weights = WeightsIn(c);
    EXPECT_EQ(weights.alone, swap ? "head in the golden" : "head in the target");
    const StepOfRank step{.step = 0, .agrees = true, .weights = &weights};
    EXPECT_THAT(DescribeCause(step).English(),
                HasSubstr("the optimizer, which has " + weights.alone.English()));
  }
}

// A loss, and a penalty of the same values, which is computed in any case and added only where
// `penalty`. `elsewhere`: the penalty is one of other values.
Dump Penalty(bool penalty, bool elsewhere = false, double error = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  b.Call("Torch.square.0.forward").In(Value(elsewhere ? 40 : 1)).Out(Value(2));
  b.Call("Torch.sum.0.forward").In(Value(2)).Out(Value(3));
  b.Call("Functional.mse_loss.0.forward").In(Value(1)).Out(Value(4));
  if (penalty) {
    b.Call("Tensor.mul.0.forward").In(Value(3)).Out(Value(5));
    b.Call("Tensor.add.0.forward").In(Value(4)).In(Value(5)).Out(Value(6));
    b.Call("Tensor.add.0.backward").In(Value(7)).Out(Value(7)).Out(Value(7));
    b.Call("Tensor.mul.0.backward").In(Value(7)).Out(Value(8));
    b.Call("Torch.sum.0.backward").In(Value(8)).Out(Value(9));
    b.Call("Torch.square.0.backward").In(Value(9)).Out(Value(10));
  }
  b.Call("Functional.mse_loss.0.backward").In(Value(7)).Out(Value(11));
  b.Call("Functional.linear.0.backward");
  b.In(Value(12, error)).Out(Value(13, error)).Out(Value(14, error));
  return b.Take();
}

TEST(GradientRewrites, ATermOfOtherValuesIsNoReason) {
  const Comparison c = MustCompare(Penalty(true, true, kWrong), Penalty(false, true));
  EXPECT_NE(First(c), "Tensor.add.0.forward") << c.first.why.English();
}

// A loss that is one call, or composed of two. `loss`, `gradient`: errors.
Dump ComposedLoss(bool composed, double loss = 0, double gradient = 0) {
  const Tensor value = Scaled(Numbers(1.5, 1.5, 1.5, 1.5).Shape("[]"), loss);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  if (composed) {
    b.Call("Tensor.log_softmax.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Tensor.mean.0.forward").In(Value(2)).Out(value);
    b.Call("Tensor.mean.0.backward").In(Value(7)).Out(Value(8));
    b.Call("Tensor.log_softmax.0.backward").In(Value(8)).Out(Value(12, gradient));
  } else {
    b.Call("Functional.cross_entropy.0.forward").In(Value(1)).Out(value);
    b.Call("Functional.cross_entropy.0.backward").In(Value(7)).Out(Value(12));
  }
  b.Call("Functional.linear.0.backward");
  b.In(Value(12, gradient)).Out(Value(13, gradient)).Out(Value(14, gradient));
  return b.Take();
}

TEST(GradientRewrites, CallsOfTheSameNamesAreNotSaid) {
  Comparison c = MustCompare(ComposedLoss(false), ComposedLoss(false));
  const Region rewrite{.pairs = {0, 1}, .target_calls = 2, .golden_calls = 2};
  EXPECT_EQ(DescribeCalls(c, rewrite, true), "linear, cross_entropy");
  EXPECT_EQ(DescribeRewrites(c, {rewrite}), "");
  Region wrong = rewrite;
  wrong.wrong = true;
  EXPECT_EQ(DescribeWrongRegion(c, {wrong}), "");
}

// A loss of pictures as they are, or with their places and channels reshaped into rows.
Dump RowGradients(bool reshaped, double error = 0) {
  const std::string pictures = "[4, 3, 8]", rows = "[32, 3]";
  const auto value = [&](int id, bool as_rows, double by = 0) {
    return Value(as_rows ? 20 + id : id, by).Shape(as_rows ? rows : pictures);
  };
  DumpBuilder b;
  b.Call("Functional.conv1d.0.forward").In(value(0, false)).Out(value(1, false));
  if (reshaped) b.Call("Tensor.reshape.0.forward").In(value(1, false)).Out(value(1, true));
  b.Call("Functional.cross_entropy.0.forward").In(value(1, reshaped)).Out(Value(2));
  b.Call("Functional.cross_entropy.0.backward").In(Value(3)).Out(value(4, reshaped, error));
  if (reshaped)
    b.Call("Tensor.reshape.0.backward").In(value(4, true, error)).Out(value(4, false, error));
  b.Call("Functional.conv1d.0.backward").In(value(4, false, error)).Out(value(5, false, error));
  return b.Take();
}

TEST(GradientRewrites, AGradientHasTheShapeOfTheArgument) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(RowGradients(swap), RowGradients(!swap));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_NE(First(MustCompare(RowGradients(swap, kWrong), RowGradients(!swap))), "none");
  }
}

// A bias that is added to scores. Under gradient checkpointing some models ask for its gradient,
// which ends in a constant. `optimizer_error`: of the gradient that the optimizer takes.
Dump Bias(bool wanted, double optimizer_error = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  b.Call("Torch.where.0.forward").In(Value(2)).Out(Value(3));
  b.Call("Tensor.add.0.forward").In(Value(1)).In(Value(3)).Out(Value(4));
  b.Call("Functional.softmax.0.forward").In(Value(4)).Out(Value(5));
  if (wanted) b.Call("Functional.relu.0.forward").In(Value(20)).Out(Value(21));
  b.Call("Functional.softmax.0.backward").In(Value(6)).Out(Value(7));
  b.Call("Tensor.add.0.backward").In(Value(7)).Out(Value(8));
  if (wanted)
    b.Out(Value(9));
  else
    b.Null(Slot::kOutput);
  if (wanted) b.Call("Torch.where.0.backward").In(Value(9)).Out(Value(10));
  b.Call("Functional.linear.0.backward").In(Value(8)).Out(Value(11));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.fc.weight", Value(12, optimizer_error))
      .OutAt("0.weights.fc.weight", Value(13));
  return b.Take();
}

TEST(GradientRewrites, AGradientOfAConstantIsForNothing) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Bias(swap), Bias(!swap));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_NE(First(MustCompare(Bias(swap, kWrong), Bias(!swap))), "none");
  }
}

// Numbers of a tensor of `rows` rows and 4 columns.
Tensor Rows4(int rows, double max, double min, double mean, double norm) {
  return Numbers(max, min, mean, norm).Shape("[" + std::to_string(rows) + ", 4]");
}

// Queries and keys by two products, or by one whose result is split. `error`: of the gradient of
// the joined weight; the golden's parts have the others.
Dump ProjectionGradients(bool joined, double error = 0) {
  const auto row = [](int id) { return Value(id).Shape("[3, 4]"); };
  DumpBuilder b;
  if (joined) {
    b.Call("Functional.linear.0.forward").In(row(0)).In(Rows4(8, 2, -2, 0, 5));
    b.Out(Value(1).Shape("[3, 8]"));
    b.Call("Torch.split.0.forward").In(Value(1).Shape("[3, 8]")).Out(row(2)).Out(row(3));
  } else {
    b.Call("Functional.linear.0.forward").In(row(0)).In(Rows4(4, 2, -1, 0, 4)).Out(row(2));
    b.Call("Functional.linear.1.forward").In(row(0)).In(Rows4(4, 1, -2, 0, 3)).Out(row(3));
  }
  b.Call("Tensor.matmul.0.forward").In(row(2)).In(row(3)).Out(Value(4));
  b.Call("Tensor.matmul.0.backward").In(Value(5)).Out(row(6)).Out(row(7));
  const Tensor whole = Scaled(Rows4(8, 3, -2, 0.5, 5), error);
  const Tensor query = Rows4(4, 3, -1, 1, 4), key = Rows4(4, 2, -2, 0, 3);
  if (joined) {
    b.Call("Torch.split.0.backward").In(row(6)).In(row(7)).Out(Value(8).Shape("[3, 8]"));
    b.Call("Functional.linear.0.backward").In(Value(8).Shape("[3, 8]")).Out(whole);
  } else {
    b.Call("Functional.linear.1.backward").In(row(7)).Out(key);
    b.Call("Functional.linear.0.backward").In(row(6)).Out(query);
  }
  b.Call("Optimizer.SGD.step.0.forward");
  if (joined) {
    b.Kwarg("gradients.attn.to_qk.weight", whole);
    b.OutAt("0.weights.attn.to_qk.weight", whole);
  } else {
    b.Kwarg("gradients.attn.to_q.weight", query).Kwarg("gradients.attn.to_k.weight", key);
    b.OutAt("0.weights.attn.to_q.weight", query).OutAt("0.weights.attn.to_k.weight", key);
  }
  return b.Take();
}

TEST(GradientRewrites, WeightsInOnePieceOrInSeveral) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(ProjectionGradients(swap), ProjectionGradients(!swap));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
    const Comparison wrong =
        MustCompare(ProjectionGradients(swap, kWrong), ProjectionGradients(!swap, kWrong));
    EXPECT_NE(First(wrong), "none");
  }
}

}  // namespace
}  // namespace msprobe::compare::test
