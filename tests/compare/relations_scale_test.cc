// Values that are a number times others, and wrong values in coarse dtypes: what relations say of
// losses that go backward times 64, of casts, and of optimizers that divide by a norm of all
// gradients.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <cstring>

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
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Elements ProductOf(const Elements& x, const Elements& y) {
  Elements out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * y[i];
  return out;
}

// The gradient goes backward times a number, by which it is divided at the end.
Dump ScaledRun(float factor, bool wrong) {
  const Elements a = Random(16, 1), saved = Random(16, wrong ? 3 : 2), gradient = Random(16, 4);
  const Elements given = Times(gradient, factor), made = ProductOf(gradient, saved);
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(Random(16, 5))).Out(Recorded(saved));
  b.Call("Tensor.mul.0.forward").In(Recorded(a)).In(Recorded(saved));
  b.Out(Recorded(ProductOf(a, saved)));
  b.Call("Tensor.mul.1.forward").In(Recorded(Random(16, 6)));
  b.Value("other", "float", std::to_string(factor));
  b.Out(Recorded(Times(Random(16, 6), factor)));
  b.Call("Tensor.mul.1.backward").In(Recorded(gradient)).Out(Recorded(given));
  b.Call("Tensor.mul.0.backward").In(Recorded(given)).Out(Recorded(Times(made, factor)));
  if (factor != 1) {
    b.Call("Tensor.div_.0.forward").In(Recorded(Times(made, factor))).Out(Recorded(made));
  }
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(made));
  return b.Take();
}

TEST(Scaled, AGradientTimesANumberIsNotTheCauseOfAnother) {
  EXPECT_EQ(FirstOf(ScaledRun(64, false), ScaledRun(1, false)), "none");
  EXPECT_EQ(FirstOf(ScaledRun(1, true), ScaledRun(1, false)), "Tensor.exp.0.forward");
  EXPECT_EQ(FirstOf(ScaledRun(64, true), ScaledRun(1, false)), "Tensor.exp.0.forward");
}

// Modules alone; the gradient of the second one times `second`, of the others times `factor`.
Comparison Gradients(float factor, float second) {
  const auto run = [](float times, float of_second) {
    DumpBuilder b;
    for (const char* name : {"0", "1", "2"}) {
      const auto seed = static_cast<unsigned>(name[0] - '0');
      b.Call("Module." + std::string(name) + ".Linear.forward.0").In(Recorded(Random(8, seed)));
      b.Out(Recorded(Random(8, seed + 1)));
    }
    for (const char* name : {"2", "1", "0"}) {
      const auto seed = static_cast<unsigned>(10 + name[0] - '0');
      const float here = seed == 11 ? of_second : times;
      const std::string module = "Module." + std::string(name) + ".Linear";
      b.Call(module + ".parameters_grad.0")
          .Grad("weight", Recorded(Times(Random(16, seed + 10), here)));
      b.Call(module + ".backward.0").In(Recorded(Times(Random(8, seed + 1), times)));
      b.Out(Recorded(Times(Random(8, seed), times)));
    }
    return b.Take();
  };
  return test::Compared(run(factor, second), run(1, 1));
}

TEST(Scaled, AllGradientsTimesANumberAreSaidSo) {
  const Comparison all = Gradients(0.5, 0.5);
  EXPECT_THAT(all.first.why.English(),
              EndsWith("all 3 gradients of parameters are the golden's times 0.5"));
  EXPECT_THAT(all.first.advice.English(),
              HasSubstr("what the loss or its gradient is multiplied by"));
  EXPECT_GE(all.first.confidence, 0.9);
  const Comparison negative = Gradients(-1, -1);
  EXPECT_THAT(negative.first.why.English(), EndsWith("golden's times -1"));
  for (const Comparison& c : {Gradients(0.5, 0.25), Gradients(0.5, 1), Gradients(1, 0.5)}) {
    ASSERT_GE(c.first.pair, 0);
    EXPECT_THAT(c.first.why.English(), Not(HasSubstr("gradients of parameters")));
  }
}

// Two passes and two steps: the first loss goes backward times a number, the second is wrong.
Dump Passes(float factor, bool wrong) {
  DumpBuilder b;
  for (int pass = 0; pass < 2; ++pass) {
    const auto seed = static_cast<unsigned>(10 * pass);
    const float scale = pass == 0 ? factor : 1, other = pass == 1 && wrong ? 3 : 2;
    const std::string n = "." + std::to_string(pass);
    const Elements x = Random(16, seed + 1), y = Map(x, [other](float v) { return v * v * other; });
    const Elements gradient = Map(x, [other](float v) { return v * other; });
    const float loss = y[0] + y[1] + y[2];
    b.Call("Tensor.pow" + n + ".forward").In(Recorded(x)).Out(Recorded(y));
    b.Call("Tensor.sum" + n + ".forward").In(Recorded(y)).Out(Recorded(Elements{loss}, "[]"));
    b.Call("Tensor.mul" + n + ".forward").In(Recorded(Elements{loss}, "[]"));
    b.Value("other", "float", std::to_string(scale)).Out(Recorded(Elements{scale * loss}, "[]"));
    b.Call("Tensor.mul" + n + ".backward").In(Recorded(Elements{1.0F}, "[]"));
    b.Out(Recorded(Elements{scale}, "[]"));
    b.Call("Tensor.pow" + n + ".backward").In(Recorded(Elements(16, scale)));
    b.Out(Recorded(Times(gradient, scale)));
    if (factor != 1) {
      b.Call("Tensor.div_" + n + ".forward").In(Recorded(Times(gradient, scale)));
      b.Out(Recorded(gradient));
    }
    b.Call("Optimizer.SGD.step" + n + ".forward").Kwarg("gradients.w", Recorded(gradient));
  }
  return b.Take();
}

TEST(Scaled, ALossWhoseGradientsAreRightIsNotTheCauseOfALaterPass) {
  EXPECT_EQ(FirstOf(Passes(64, false), Passes(1, false)), "none");
  EXPECT_EQ(FirstOf(Passes(64, true), Passes(1, false)), "Tensor.pow.1.forward");
}

Elements Rounded(const Elements& x) {
  return Map(x, [](float v) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    bits = (bits + 0x8000U) & 0xFFFF0000U;
    std::memcpy(&v, &bits, sizeof bits);
    return v;
  });
}

// Five per cent off, and then rounded to bfloat16: sixteen of its roundings are six per cent.
Dump CastOff(float off) {
  const Elements x = Sum(Random(64, 1), Random(64, 2), off);
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(x));
  b.Call("Tensor.to.0.forward").In(Recorded(x)).Out(Recorded(Rounded(x)).DType("torch.bfloat16"));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(Rounded(x)).DType("torch.bfloat16"));
  return b.Take();
}

TEST(Wrong, AWrongValueDoesNotBecomeRightInACoarserDType) {
  EXPECT_EQ(FirstOf(CastOff(0.05F), CastOff(0)), "Tensor.exp.0.forward");
  EXPECT_EQ(FirstOf(CastOff(1e-6F), CastOff(0)), "none");
}

// A gradient in bfloat16 that is `factor` times as large, and divided by that; it is off by `off`.
Dump DividedAgain(float factor, float off) {
  const Elements x = Random(64, 1);
  const auto sixteen_bits = [](const Elements& y) {
    return Recorded(Rounded(y)).DType("torch.bfloat16");
  };
  Elements rounded = x;
  for (size_t i = 0; i < x.size(); ++i) rounded[i] *= factor * (1 + (i % 2 == 0 ? off : -off));
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(sixteen_bits(rounded));
  if (factor != 1) {
    b.Call("Tensor.div.0.forward").In(sixteen_bits(rounded));
    b.Out(sixteen_bits(Times(rounded, 1 / factor)));
  }
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", sixteen_bits(Times(rounded, 1 / factor)));
  return b.Take();
}

TEST(Wrong, ANumberTimesTheGoldensIsRightWhereItIsDividedByThatNumber) {
  EXPECT_EQ(FirstOf(DividedAgain(2, 0.03F), DividedAgain(1, 0)), "none");
  EXPECT_NE(FirstOf(DividedAgain(2, 0.5F), DividedAgain(1, 0)), "none");
}

// What code without records made is a third off.
Dump Arriving(float off) {
  const Elements x = Sum(Random(64, 1), Random(64, 2), off);
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(x)).Out(Recorded(Map(x, [](float v) {
    return std::exp(v);
  })));
  return b.Take();
}

TEST(Wrong, ALimitOfTheUserHoldsForWhatNoCallMade) {
  EXPECT_EQ(FirstOf(Arriving(0.3F), Arriving(0)), "Tensor.exp.0.forward");
  const Comparison c = test::MustCompare(Arriving(0.3F), Arriving(0), {.tolerance = 1e7});
  EXPECT_EQ(std::string(test::First(c)), "none");
}

// An optimizer that divides all gradients by their norm; one of them is a little off.
Dump Joined(const std::string& optimizer, float off) {
  const Elements a = Random(16, 1), b_rounded = Sum(Random(16, 2), Random(16, 3), off);
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(Random(16, 4))).Out(Recorded(b_rounded));
  b.Call("Optimizer." + optimizer + ".step.0.forward");
  b.Kwarg("gradients.a", Recorded(a)).Kwarg("gradients.b", Recorded(b_rounded));
  b.OutAt("0.state.a.exp_avg", Recorded(Times(a, 0.1F * (1 + off))));
  return b.Take();
}

TEST(Optimizers, MayDivideByANormOfAllGradients) {
  EXPECT_EQ(FirstOf(Joined("Lamb", 2e-6F), Joined("Lamb", 0)), "none");
  EXPECT_EQ(FirstOf(Joined("Adam", 2e-6F), Joined("Adam", 0)), "Optimizer.Adam.step.0.forward");
  const Comparison wrong = test::Compared(Joined("Lamb", 0.3F), Joined("Lamb", 0));
  EXPECT_EQ(std::string(test::First(wrong)), "Tensor.exp.0.forward");
  EXPECT_TRUE(wrong.runners_up.empty());  // that the other moment is off follows
}

// Clipping between two passes: the second adds its gradients to what the first left.
Dump Clipped(bool between) {
  const Elements weight = Random(16, 1), first = Random(16, 2), second = Random(16, 3);
  const Elements left = Times(first, between ? 0.5F : 1);
  DumpBuilder b;
  const auto pass = [&](unsigned n, const Elements& part, const Elements& sum) {
    const std::string call = "Functional.linear." + std::to_string(n);
    b.Call("Module.fc.Linear.forward." + std::to_string(n)).In(Recorded(Random(16, 10 + n)));
    b.Parameter("weight", Recorded(weight)).Out(Recorded(Random(16, 20 + n)));
    b.Call(call + ".forward").In(Recorded(Random(16, 10 + n))).In(Recorded(weight));
    b.Out(Recorded(Random(16, 20 + n))).Parent("Module.fc.Linear.forward." + std::to_string(n));
    b.Call("Module.fc.Linear.parameters_grad." + std::to_string(n));
    b.Grad("weight", Recorded(sum));
    b.Call(call + ".backward").In(Recorded(Random(16, 30 + n))).Out(Recorded(Random(16, 40 + n)));
    b.Out(Recorded(part));
  };
  pass(0, first, first);
  if (between) {
    b.Call("Optimizer.clip_grad_norm_.0.forward").Kwarg("gradients.fc.weight", Recorded(first));
    b.OutAt("0.total_norm", Recorded(Elements{4.0F}, "[]"));
    b.OutAt("0.gradients.fc.weight", Recorded(left));
  }
  pass(1, second, Sum(left, second));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.fc.weight", Recorded(Sum(left, second)));
  b.Kwarg("weights.fc.weight", Recorded(weight));
  return b.Take();
}

TEST(Optimizers, WhatClippingLeavesIsWhatTheNextPassAddsTo) {
  EXPECT_EQ(FirstOf(Clipped(true), Clipped(false)), "Optimizer.clip_grad_norm_.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
