// Laws of the model of error: how far a rounding reaches through functions, kinks, normalisations
// and optimizers. Each has a run that differs by rounding alone, and one that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/compare/judge/judge.h"
#include "tests/compare/by_relations.h"

namespace msprobe::compare::relations {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::FirstOf;
using test::Map;
using test::Random;
using test::Recorded;
using test::Sum;
using test::Times;

constexpr float kSmallError = 1e-6F;

// An argument off by `off` of itself, and its function off by `wrong`.
Dump OneFunction(const std::string& name, float size, float off, float wrong, float (*f)(float)) {
  Elements x = Times(Random(64, 1), size);
  for (size_t i = 0; i < x.size(); i += 8) x[i] = 0.5F;  // small beside the others
  for (float& each : x) each += off * size;
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional." + name + ".0.forward").In(Recorded(x));
  b.Out(Recorded(Times(Map(x, f), 1 + wrong)));
  return b.Take();
}

TEST(Laws, AnAbsoluteErrorDoesNotGrowWhereAFunctionIsNotSteep) {
  const auto run = [](const std::string& name, float off, float wrong) {
    return OneFunction(name, 300, off, wrong, [](float v) { return std::tanh(v); });
  };
  EXPECT_EQ(FirstOf(run("tanh", kSmallError, 0), run("tanh", 0, 0)), "none");
  // Of an operation that the table does not know, nothing says so.
  EXPECT_EQ(FirstOf(run("mine", kSmallError, 0), run("mine", 0, 0)), "Functional.mine.0.forward");
  EXPECT_EQ(FirstOf(run("tanh", kSmallError, 0.01F), run("tanh", 0, 0)),
            "Functional.tanh.0.forward");
}

TEST(Laws, ALargeArgumentOfAnExponentialHasManyRoundings) {
  const auto run = [](const std::string& name, float off, float wrong) {
    return OneFunction(name, 20, off, wrong, [](float v) { return std::exp(v - 50); });
  };
  EXPECT_EQ(FirstOf(run("exp", kSmallError, 0), run("exp", 0, 0)), "none");
  EXPECT_EQ(FirstOf(run("mine", kSmallError, 0), run("mine", 0, 0)), "Functional.mine.0.forward");
  EXPECT_EQ(FirstOf(run("exp", kSmallError, 0.01F), run("exp", 0, 0)), "Functional.exp.0.forward");
}

// A call of two tensors that both runs have, whose result is off by `off` of itself.
Dump OfTheSame(const std::string& name, float off) {
  const Elements x = Random(64, 1), y = Random(64, 2);
  DumpBuilder b;
  b.Call(name + ".0.forward").In(Recorded(x)).In(Recorded(y));
  b.Out(Recorded(Times(Sum(x, y), 1 + off)));
  return b.Take();
}

TEST(Laws, ASumOfTwoTensorsThatBothRunsHaveIsRoundedOnce) {
  EXPECT_EQ(FirstOf(OfTheSame("Tensor.__add__", 1.2e-7F), OfTheSame("Tensor.__add__", 0)), "none");
  EXPECT_EQ(FirstOf(OfTheSame("Tensor.__add__", kSmallError), OfTheSame("Tensor.__add__", 0)),
            "Tensor.__add__.0.forward");
  // How many elements these add up is not known.
  for (const char* name : {"Torch.cumsum", "Tensor.index_add_"})
    EXPECT_EQ(FirstOf(OfTheSame(name, kSmallError), OfTheSame(name, 0)), "none") << name;
}

// The gradient of a bias before a batch norm, which is nothing but rounding: of `rows` rows.
Dump BiasBefore(const std::string& norm, float left) {
  constexpr int kRows = 4096, kChannels = 16;
  const Elements arriving = Random(kRows * kChannels, 1), bias = Times(Random(kChannels, 2), left);
  const std::string rows = "[4096, 16]";
  const Elements x = Random(kRows * kChannels, 3), y = Random(kRows * kChannels, 4);
  Elements gradient = Random(kRows * kChannels, 5);
  gradient[0] += 1e-3F * left;  // it is rounded in each run
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 6), "[16, 4]"));
  b.Out(Recorded(x, rows));
  b.Call("Functional." + norm + ".0.forward").In(Recorded(x, rows)).Out(Recorded(y, rows));
  b.Call("Functional." + norm + ".0.backward").In(Recorded(arriving, rows));
  b.Out(Recorded(gradient, rows));
  b.Call("Functional.linear.0.backward").In(Recorded(gradient, rows)).Out(Recorded(bias, "[16]"));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.bias", Recorded(bias, "[16]"));
  return b.Take();
}

TEST(Laws, ABatchNormRoundsAllRowsAlike) {
  const float left = 64 * 64 * 3e-8F;  // rounding of the mean, once a row
  EXPECT_EQ(FirstOf(BiasBefore("batch_norm", left), BiasBefore("batch_norm", -left)), "none");
  EXPECT_EQ(FirstOf(BiasBefore("layer_norm", left), BiasBefore("layer_norm", -left)),
            "Functional.linear.0.backward");
  EXPECT_EQ(FirstOf(BiasBefore("batch_norm", 100 * left), BiasBefore("batch_norm", -left)),
            "Functional.linear.0.backward");
}

// The gradient of relu: where an argument is near zero, rounding decides whether it passes.
Dump Kink(const std::string& name, float off, float wrong) {
  constexpr int kElements = 4096;
  Elements x = Sum(Random(kElements, 1), Random(kElements, 2), off);
  x[7] = off == 0 ? 1e-6F : -1e-6F;
  const Elements gradient = Random(kElements, 3);
  Elements passed(kElements), made(kElements);
  for (size_t i = 0; i < passed.size(); ++i) {
    passed[i] = std::max(x[i], 0.0F);
    made[i] = x[i] > 0 ? gradient[i] * (1 + wrong) : 0;
  }
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional." + name + ".0.forward").In(Recorded(x)).Out(Recorded(passed));
  b.Call("Functional." + name + ".0.backward").In(Recorded(gradient)).Out(Recorded(made));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(made));
  return b.Take();
}

TEST(Laws, RoundingPutsSomeElementsOnTheOtherSideOfAKink) {
  constexpr float kOff = 3e-6F;
  EXPECT_EQ(FirstOf(Kink("relu", 1e-3F, 0), Kink("relu", 1e-3F, 0)), "none");
  EXPECT_EQ(FirstOf(Kink("relu", kOff, 0), Kink("relu", 0, 0)), "none");
  EXPECT_EQ(FirstOf(Kink("mine", kOff, 0), Kink("mine", 0, 0)), "Functional.mine.0.backward");
  EXPECT_EQ(FirstOf(Kink("relu", kOff, 0.1F), Kink("relu", 0, 0)), "Functional.relu.0.backward");
}

// A chain whose errors grow, so that the bound of its last call is wider than can be judged.
// `beside`: what only the target makes goes into that call, too.
Dump WithGrownErrors(float off, float last, bool beside) {
  DumpBuilder b;
  const Elements x = Map(Random(256, 1), [](float v) { return 50 + v; });
  const auto grown = [&](uint64_t seed, float error) {
    return Sum(Random(256, seed), Random(256, seed + 10), error);
  };
  const Elements first = grown(2, off), second = grown(3, 8 * off), third = grown(4, last);
  b.Call("Functional.exp.0.forward").In(Recorded(x)).Out(Recorded(first));
  b.Call("Torch.pow.0.forward").In(Recorded(first)).Out(Recorded(second));
  if (beside) b.Call("Torch.mine.0.forward").In(Recorded(x)).Out(Recorded(Random(256, 9)));
  b.Call("Torch.pow.1.forward").In(Recorded(second));
  if (beside) b.In(Recorded(Random(256, 9)));
  b.Out(Recorded(third));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(third));
  return b.Take();
}

// Of such a chain rounding explains an error of kWide, and half of the digits do not agree.
constexpr float kGrows = 1e-5F, kJudged = 1e-3F, kWide = 4e-3F, kBeyond = 0.05F;

TEST(Laws, WhereABoundIsTooWideToJudgeAValueIsUnknown) {
  const auto named = [](float off, float last, bool beside) {
    return FirstOf(WithGrownErrors(off, last, beside), WithGrownErrors(0, 0, false));
  };
  EXPECT_EQ(named(kGrows, kJudged, false), "none");
  EXPECT_EQ(named(kGrows, kWide, false), "none");
  EXPECT_EQ(named(kGrows, kBeyond, false), "Torch.pow.1.forward");
  // Where nothing grew, the same errors are far beyond rounding.
  EXPECT_EQ(named(0, kJudged, false), "Torch.pow.1.forward");
  EXPECT_EQ(named(0, kWide, false), "Torch.pow.1.forward");
  // Something unrelated goes in. An error that can be judged is no chance; an unknown value proves
  // nothing: the walk goes on behind it, and it is not named itself.
  EXPECT_EQ(named(kGrows, kJudged, true), "none");
  EXPECT_EQ(named(kGrows, kWide, true), "Torch.mine.0.forward");
  EXPECT_EQ(named(kGrows, kBeyond, true), "Torch.mine.0.forward");
}

TEST(Laws, TheRowOfAnUnknownValueSaysSo) {
  const auto last_row = [](float last, bool beside) {
    const Comparison c =
        test::Compared(WithGrownErrors(kGrows, last, beside), WithGrownErrors(0, 0, false));
    for (size_t i = c.rows.size(); i-- > 0;) {
      const int32_t leaf = c.rows[i].target;
      if (leaf >= 0 && c.target.leaves[leaf].slot == Slot::kOutput) return c.measures[i];
    }
    return Measure();
  };
  EXPECT_EQ(last_row(kJudged, false).verdict, RowVerdict::kNoise);
  for (const bool beside : {false, true}) {
    const Measure unknown = last_row(kWide, beside);
    EXPECT_EQ(unknown.verdict, RowVerdict::kUnknown);
    EXPECT_EQ(unknown.reason, Reason::kTooWide);
    EXPECT_TRUE(IsNeutral(unknown));
    EXPECT_EQ(last_row(kBeyond, beside).verdict, RowVerdict::kDiffers);
  }
}

// A normalisation takes away of a gradient what is the same in all elements.
Dump Normalised(const std::string& name, float off, float wrong) {
  const Elements x = Random(256, 1), y = Map(x, [](float v) { return v / 2; });
  const Elements apart = Random(256, 2);
  const Elements arriving = Map(Sum(apart, Random(256, 3), off), [](float v) { return 1000 + v; });
  const Elements left = Times(Sum(apart, Random(256, 4), 1000 * off), (1 + wrong) / 2);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional." + name + ".0.forward").In(Recorded(x)).Out(Recorded(y));
  b.Call("Functional." + name + ".0.backward").In(Recorded(arriving)).Out(Recorded(left));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(left));
  return b.Take();
}

TEST(Laws, TheGradientOfANormalisationIsASumThatMayCancel) {
  EXPECT_EQ(FirstOf(Normalised("layer_norm", kSmallError, 0), Normalised("layer_norm", 0, 0)),
            "none");
  EXPECT_EQ(FirstOf(Normalised("mine", kSmallError, 0), Normalised("mine", 0, 0)),
            "Functional.mine.0.backward");
  EXPECT_EQ(FirstOf(Normalised("layer_norm", kSmallError, 0.5F), Normalised("layer_norm", 0, 0)),
            "Functional.layer_norm.0.backward");
}

// The gradient of a softmax of numbers that are nearly equal, where what arrives is nearly the same
// in all elements, too.
Dump OfSoftmax(const std::string& name, float off, float wrong) {
  constexpr int kElements = 256;
  const Elements x = Times(Random(kElements, 1), 1e-3F);
  const Elements y = Map(x, [](float v) { return (1 + v) / kElements; });
  const Elements apart = Random(kElements, 2);
  const Elements arriving =
      Map(Sum(apart, Random(kElements, 3), off), [](float v) { return 1000 + v; });
  const Elements left =
      Times(Sum(apart, Random(kElements, 4), 1000 * off), (1 + wrong) / kElements);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional." + name + ".0.forward").In(Recorded(x)).Out(Recorded(y));
  b.Call("Functional." + name + ".0.backward").In(Recorded(arriving)).Out(Recorded(left));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(left));
  return b.Take();
}

TEST(Laws, TheGradientOfASoftmaxMayCancel) {
  EXPECT_EQ(FirstOf(OfSoftmax("softmax", kSmallError, 0), OfSoftmax("softmax", 0, 0)), "none");
  EXPECT_EQ(FirstOf(OfSoftmax("mine", kSmallError, 0), OfSoftmax("mine", 0, 0)),
            "Functional.mine.0.backward");
  EXPECT_EQ(FirstOf(OfSoftmax("softmax", kSmallError, 0.5F), OfSoftmax("softmax", 0, 0)),
            "Functional.softmax.0.backward");
}

// A backward call whose gradient was not recorded, since its result was changed in place.
Dump WithoutGradient(float noise, float off) {
  const Elements x = Random(64, 1), gradient = Sum(Random(64, 2), Random(64, 3), off);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(x)).Out(Recorded(Random(64, 4)));
  b.Call("Functional.gelu.0.forward").In(Recorded(Random(64, 4)));
  b.Out(Recorded(Sum(Random(64, 5), Random(64, 6), noise)));
  b.Call("Functional.linear.0.backward").Null().Out(Recorded(gradient));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(gradient));
  return b.Take();
}

TEST(Laws, AGradientThatWasNotRecordedMayBeOffByTheNoiseOfTheRun) {
  constexpr float kNoise = 5e-7F, kOff = 3e-6F;
  EXPECT_EQ(FirstOf(WithoutGradient(kNoise, kOff), WithoutGradient(0, 0)), "none");
  EXPECT_EQ(FirstOf(WithoutGradient(kNoise, 0.01F), WithoutGradient(0, 0)),
            "Functional.linear.0.backward");
}

// Gradients of a weight and its bias that no recorded call made: the bias is a sum over the same
// rows, in which nearly all cancels.
Dump OfUnseenSums(float noise, float off, bool beside) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 1)));
  b.Out(Recorded(Times(Random(64, 2), 1 + noise)));
  b.Call("Optimizer.Adam.step.0.forward");
  if (beside) b.Kwarg("gradients.m.weight", Recorded(Times(Random(64, 3), 1000)));
  Elements bias = Random(16, 4);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] += (i % 2 == 0 ? 1.0F : -1.0F) * off;
  b.Kwarg("gradients.m.bias", Recorded(bias)).Kwarg("weights.m.bias", Recorded(Random(16, 5)));
  b.OutAt("0.weights.m.bias", Recorded(Random(16, 6)));
  return b.Take();
}

TEST(Laws, AGradientThatNobodyRecordedIsASumAsTheOneBesideIt) {
  const auto run = [](float noise, float off, bool beside = true) {
    return OfUnseenSums(noise, off, beside);
  };
  EXPECT_EQ(FirstOf(run(kSmallError, 0.002F), run(0, 0)), "none");
  EXPECT_EQ(FirstOf(run(kSmallError, 0.002F, false), run(0, 0, false)),
            "Optimizer.Adam.step.0.forward");
  EXPECT_EQ(FirstOf(run(kSmallError, 5), run(0, 0)), "Optimizer.Adam.step.0.forward");
}

// Code without records chooses by costs which rows a loss takes.
Dump Assigned(bool other) {
  const Elements cost = Random(12, other ? 2 : 1);
  DumpBuilder b;
  b.Call("Torch.mine.0.forward").In(Recorded(Random(12, 3), "[4, 3]"));
  b.Out(Recorded(cost, "[4, 3]"));
  b.Call("Tensor.index_select.0.forward").In(Recorded(Random(24, 4), "[4, 6]"));
  const Elements chosen = other ? Elements{2, 0, 1} : Elements{0, 1, 3};
  b.In(Recorded(chosen, "[3]").DType("torch.int64"));
  b.Out(Recorded(Random(18, other ? 5 : 6), "[3, 6]"));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(Random(18, other ? 5 : 6), "[3, 6]"));
  return b.Take();
}

TEST(Laws, WhatIndicesWereChosenByIsToBlameForThem) {
  EXPECT_EQ(FirstOf(Assigned(false), Assigned(false)), "none");
  EXPECT_EQ(FirstOf(Assigned(true), Assigned(false)), "Torch.mine.0.forward");
}

// An optimizer that another kernel computes.
Dump UpdatedBy(const std::string& implementation, float off) {
  const Elements gradient = Random(64, 1), weights = Random(64, 2);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(weights)).Out(Recorded(gradient));
  b.Call("Optimizer.AdamW.step.0.forward").Kwarg("gradients.w", Recorded(gradient));
  b.Kwarg("weights.w", Recorded(weights));
  if (!implementation.empty()) b.Value("param_groups.0.implementation", "str", implementation);
  b.OutAt("0.weights.w", Recorded(Sum(weights, Random(64, 3), 0.01F * (1 + off))));
  return b.Take();
}

TEST(Laws, AnotherKernelOfAnOptimizerIsNoOtherArgument) {
  EXPECT_EQ(FirstOf(UpdatedBy("fused", 2e-6F), UpdatedBy("", 0)), "none");
  EXPECT_EQ(FirstOf(UpdatedBy("fused", 0.1F), UpdatedBy("", 0)), "Optimizer.AdamW.step.0.forward");
}

// A gradient that is nothing but rounding of `size`, which moves the weight only where it is large.
Dump MovedBy(float size, float wrong) {
  const Elements x = Random(256, 1), y = Map(x, [](float v) { return v / 2; });
  const Elements arriving = Map(Random(256, 2), [](float v) { return 1000 + v / 1000; });
  const Elements left = Times(Random(256, size < 1e-6F ? 3 : 4), size), weights = Random(256, 5);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional.layer_norm.0.forward").In(Recorded(x)).Out(Recorded(y));
  b.Call("Functional.layer_norm.0.backward").In(Recorded(arriving)).Out(Recorded(left));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(left));
  b.Kwarg("weights.w", Recorded(weights)).Value("param_groups.0.lr", "float", "0.1");
  const bool moves = size > 1e-6F || wrong != 0;
  b.OutAt("0.weights.w",
          Recorded(moves ? Sum(weights, wrong != 0 ? Random(256, 6) : left, -0.1F) : weights));
  return b.Take();
}

TEST(Laws, OneRunMayLeaveAWeightThatRoundingAloneMoves) {
  EXPECT_EQ(FirstOf(MovedBy(1e-7F, 0), MovedBy(1e-4F, 0)), "none");
  EXPECT_EQ(FirstOf(MovedBy(1e-4F, 0), MovedBy(1e-7F, 0)), "none");
}

// A gradient of `size` where terms of 1000 cancel is clipped, and Adam moves its weight by the rate
// to one side; nothing moves it where the terms leave zero.
Dump ClippedAndMovedBy(float size, float moved) {
  const Elements x = Random(256, 1), y = Map(x, [](float v) { return v / 2; });
  const Elements arriving = Map(Random(256, 2), [](float v) { return 1000 + v / 1000; });
  const Elements left = Times(Random(256, 4), size), weights = Random(256, 5);
  const Elements clipped = Times(left, 0.5F), rest = Random(64, 7);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Functional.layer_norm.0.forward").In(Recorded(x)).Out(Recorded(y));
  b.Call("Functional.layer_norm.0.backward").In(Recorded(arriving)).Out(Recorded(left));
  b.Call("Optimizer.clip_grad_norm_.0.forward").Kwarg("gradients.w", Recorded(left));
  b.Kwarg("gradients.v", Recorded(rest));
  b.OutAt("0.gradients.w", Recorded(clipped)).OutAt("0.gradients.v", Recorded(Times(rest, 0.5F)));
  b.Call("Optimizer.AdamW.step.0.forward").Kwarg("gradients.w", Recorded(clipped));
  b.Kwarg("weights.w", Recorded(weights)).Value("param_groups.0.lr", "float", "0.001");
  b.OutAt("0.weights.w",
          Recorded(moved != 0 ? Map(weights, [&](float v) { return v + moved; }) : weights));
  return b.Take();
}

TEST(Laws, TermsThatCancelMayLeaveZero) {
  EXPECT_EQ(FirstOf(ClippedAndMovedBy(0, 0), ClippedAndMovedBy(1e-5F, 0.001F)), "none");
  EXPECT_EQ(FirstOf(ClippedAndMovedBy(1e-5F, 0.001F), ClippedAndMovedBy(0, 0)), "none");
  // The golden's gradient is no rounding.
  EXPECT_NE(FirstOf(ClippedAndMovedBy(0, 0), ClippedAndMovedBy(10, 0.001F)), "none");
}

// An equal gradient, divided by a state that is off.
Dump Divided(float off, float wrong) {
  const Elements gradient = Random(64, 1), weights = Random(64, 2);
  const Elements state = Sum(Map(gradient, [](float v) { return v * v; }), Random(64, 3), off);
  const Elements step = Sum(Random(64, 4), Random(64, 5), off + wrong);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(weights)).Out(Recorded(gradient));
  b.Call("Functional.softmax.0.forward").In(Recorded(weights)).Out(Recorded(state));
  b.Call("Optimizer.RMSprop.step.0.forward").Kwarg("gradients.w", Recorded(gradient));
  b.Kwarg("state.w.square_avg", Recorded(state)).Kwarg("weights.w", Recorded(weights));
  b.OutAt("0.weights.w", Recorded(Sum(weights, step, 0.01F)));
  return b.Take();
}

TEST(Laws, AnErrorOfTheStateOfAnOptimizerMovesAWeight) {
  EXPECT_EQ(FirstOf(Divided(4e-6F, 1e-3F), Divided(0, 0)), "none");
  EXPECT_EQ(FirstOf(Divided(0, 1e-3F), Divided(0, 0)), "Optimizer.RMSprop.step.0.forward");
}

// Two optimizers, of which the second has `rate`: by that its weight is off by `moved` of its step.
Dump TwoOptimizers(const std::string& rate, float moved) {
  const std::string shape = "[8, 8]";
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 9), shape));
  for (const unsigned i : {0U, 10U})
    b.Out(Recorded(Sum(Random(64, i + 1), Random(64, i + 3), moved * 1e-5F), shape));
  for (const unsigned i : {0U, 10U}) {
    const Elements weights = Random(64, i + 2), step = Random(64, i + 4);
    b.Call("Optimizer.Adam.step." + std::to_string(i / 10) + ".forward");
    b.Value("param_groups.0.eps", "float", i == 0 ? "0.1" : rate);
    b.Kwarg("gradients.w",
            Recorded(Sum(Random(64, i + 1), Random(64, i + 3), moved * 1e-5F), shape));
    b.Kwarg("weights.w", Recorded(weights, shape));
    const Elements off = Sum(step, Random(64, i + 5), i == 0 ? 0.01F * moved : moved);
    b.OutAt("0.weights.w", Recorded(Sum(weights, off, 0.01F), shape));
  }
  return b.Take();
}

TEST(Laws, SettingsAreThoseOfEachOptimizer) {
  EXPECT_EQ(FirstOf(TwoOptimizers("0.1", 0.1F), TwoOptimizers("0.1", 0)), "none");
  const Comparison c = test::Compared(TwoOptimizers("0.2", 0.1F), TwoOptimizers("0.1", 0));
  EXPECT_EQ(test::First(c), "Optimizer.Adam.step.1.forward");
  EXPECT_TRUE(c.decided->differs) << "its weight is judged as that of another optimizer";
}

// A gradient off by `off`, and a state that is off by `wrong`.
Dump StateOf(const std::string& optimizer, const std::string& state, float off, float wrong) {
  const Elements weights = Random(64, 2), step = Random(64, 4);
  const Elements gradient = Sum(Random(64, 1), Random(64, 3), off);
  const std::string shape = "[8, 8]";
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(weights, shape)).Out(Recorded(gradient, shape));
  b.Call("Optimizer." + optimizer + ".step.0.forward")
      .Kwarg("gradients.w", Recorded(gradient, shape));
  b.Kwarg("weights.w", Recorded(weights, shape));
  b.OutAt("0.weights.w", Recorded(Sum(weights, step, 0.01F), shape));
  b.OutAt("0.state.w." + state, Recorded(Sum(step, Random(64, 5), wrong), shape));
  return b.Take();
}

TEST(Laws, AStateThatHoldsMovementsIsJudgedAsAWeight) {
  constexpr float kOff = 1e-6F, kMoved = 0.1F;
  const auto named = [](const std::string& optimizer, const std::string& state, float off,
                        float wrong) {
    return FirstOf(StateOf(optimizer, state, off, wrong), StateOf(optimizer, state, 0, 0));
  };
  EXPECT_EQ(named("RMSprop", "momentum_buffer", kOff, kMoved), "none");
  EXPECT_EQ(named("RMSprop", "momentum_buffer", kOff, 1), "Optimizer.RMSprop.step.0.forward");
  EXPECT_EQ(named("RMSprop", "momentum_buffer", 0, kMoved), "Optimizer.RMSprop.step.0.forward");
  // An average of gradients, and the momentum of an optimizer that divides by nothing.
  EXPECT_EQ(named("RMSprop", "grad_avg", kOff, kMoved), "Optimizer.RMSprop.step.0.forward");
  EXPECT_EQ(named("SGD", "momentum_buffer", kOff, kMoved), "Optimizer.SGD.step.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
