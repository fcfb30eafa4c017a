// Laws of the model of error: how far a rounding reaches through functions, kinks, normalisations
// and optimizers. Each has a run that differs by rounding alone, and one that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

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

TEST(Laws, WhereABoundIsTooWideToJudgeAValueIsUnknown) {
  constexpr float kOff = 1e-5F, kJudged = 5e-4F, kWide = 1.5e-3F, kBeyond = 0.05F;
  const auto named = [](float off, float last, bool beside) {
    return FirstOf(WithGrownErrors(off, last, beside), WithGrownErrors(0, 0, false));
  };
  EXPECT_EQ(named(kOff, kJudged, false), "none");
  EXPECT_EQ(named(kOff, kWide, false), "none");
  EXPECT_EQ(named(kOff, kBeyond, false), "Torch.pow.1.forward");
  // Where nothing grew, the same error is far beyond rounding.
  EXPECT_EQ(named(0, kWide, false), "Torch.pow.1.forward");
  // Something unrelated goes in: statistics and a sketch that agree so well are no chance.
  EXPECT_EQ(named(kOff, kJudged, true), "none");
  EXPECT_EQ(named(kOff, kWide, true), "none");
  EXPECT_NE(named(kOff, kBeyond, true), "none");
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

}  // namespace
}  // namespace msprobe::compare::relations
