// Relations between values of which little was recorded: by dumps of older versions, of another
// framework, or where a compiler made a part of the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "engine/compare/compare.h"
#include "engine/compare/regions/regions.h"
#include "tests/compare/divergence_values.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::kWrong;
using test::Numbers;
using test::Scaled;
using test::Value;
using ::testing::HasSubstr;

Comparison RelatedRecords(Dump target, Dump golden) {
  return test::MustCompare(std::move(target), std::move(golden));
}

std::string FirstOfRecords(Dump target, Dump golden) {
  return std::string(test::First(RelatedRecords(std::move(target), std::move(golden))));
}

Dump WithoutNorms(Dump dump) {
  for (Leaf& leaf : dump.leaves) {
    leaf.norm = TextRef();
    leaf.norm_value = std::numeric_limits<double>::quiet_NaN();
  }
  return dump;
}

Dump ChainOfNorms(double error, bool norms) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
  b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(3, error));
  b.Call("Functional.relu.0.forward").In(Value(3, error)).Out(Value(4, error));
  return norms ? b.Take() : WithoutNorms(b.Take());
}

TEST(RelationsOfRecords, WithoutNormsTheRowOfAValueTells) {
  for (const bool norms : {true, false}) {
    EXPECT_EQ(FirstOfRecords(ChainOfNorms(0, norms), ChainOfNorms(0, norms)), "none");
    EXPECT_EQ(FirstOfRecords(ChainOfNorms(1e-7, norms), ChainOfNorms(0, norms)), "none");
    EXPECT_EQ(FirstOfRecords(ChainOfNorms(kWrong, norms), ChainOfNorms(0, norms)),
              "Functional.gelu.0.forward")
        << norms;
  }
}

TEST(RelationsOfRecords, StatisticsOfNaNAreNoOnesContent) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto run = [&](bool wrong) {
    const test::Tensor all_nan = Numbers(nan, nan, nan, nan);
    DumpBuilder b;
    b.Call("Functional.softmax.0.forward").In(Value(1)).Out(wrong ? all_nan : Value(2));
    b.Call("Functional.linear.0.forward").In(wrong ? all_nan : Value(2));
    b.Out(wrong ? all_nan : Value(3));
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(true), run(false)), "Functional.softmax.0.forward");
}

TEST(RelationsOfRecords, TheShapeOfAResultIsAPartOfIt) {
  const auto run = [](const char* shape) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward")
        .In(Value(1).Shape("[2, 3]"))
        .Out(Value(2).Shape("[2, 3]"));
    b.Call("Tensor.reshape.0.forward").In(Value(2).Shape("[2, 3]")).Out(Value(2).Shape(shape));
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run("[6]"), run("[3, 2]")), "Tensor.reshape.0.forward");
  EXPECT_EQ(FirstOfRecords(run("[1, 6]"), run("[6]")), "none");
}

TEST(RelationsOfRecords, ACallThatChangesNothingLeavesAResult) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2, error));
    b.Call("Functional.dropout.0.forward").In(Value(2, error)).Out(Value(2, error));
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(kWrong), run(0)), "Functional.linear.0.forward");
}

// msprobe 26 lists the gradients of a call's inputs in another order.
TEST(RelationsOfRecords, GradientsInAnotherOrderAreKnownByTheirContents) {
  const auto run = [](Dialect dialect, bool swapped, double error) {
    const test::Tensor first = Scaled(Numbers(1, -1, 0, 3), error).Shape("[2, 4]");
    const test::Tensor second = Numbers(5, -4, 0.5, 9).Shape("[3, 4]");
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(7)).Out(Value(8));
    b.Call("Functional.linear.0.backward").In(Value(9)).Out(swapped ? second : first);
    b.Out(swapped ? first : second);
    b.dump().dialect = dialect;
    return b.Take();
  };
  const Dialect ours = Dialect::kMsprobe27, theirs = Dialect::kMsprobe26;
  EXPECT_EQ(FirstOfRecords(run(ours, false, 0), run(theirs, true, 0)), "none");
  EXPECT_EQ(FirstOfRecords(run(ours, false, kWrong), run(theirs, true, 0)),
            "Functional.linear.0.backward");
}

TEST(RelationsOfRecords, WhatComesOutOfCompiledCodeIsNamedWhereItIsTaken) {
  const auto run = [](bool compiled, double error) {
    const test::Tensor z = Scaled(Numbers(4, -2, 0.1, 6), error);
    DumpBuilder b;
    b.Call("Functional.conv2d.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
    if (!compiled) b.Call("Torch.exp.0.forward").In(Numbers(2, -2, 0, 5)).Out(z);
    b.Call("Torch.sum.0.forward").In(z).Out(Scaled(Numbers(9, 1, 5, 9), error));
    if (compiled) b.dump().compiled = {{.module = "", .line = "m.py:3 y = f(x)"}};
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(true, 0), run(false, 0)), "none");
  const Comparison c = RelatedRecords(run(true, 0.1), run(false, 0));
  EXPECT_EQ(test::First(c), "Torch.sum.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("it comes out of compiled code (torch.compile) of the target"));
}

// Calls of both runs that compute the same are a rewrite; not those that a killed run did not
// reach.
TEST(RelationsOfRecords, OtherCallsThatAgreeAreARewrite) {
  const auto run = [](bool fused) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    if (fused) b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(4));
    if (!fused) b.Call("Torch.erf.0.forward").In(Value(2)).Out(Value(3));
    if (!fused) b.Call("Torch.mul.0.forward").In(Value(2)).In(Value(3)).Out(Value(4));
    b.Call("Functional.linear.1.forward").In(Value(4)).Out(Value(5));
    return b.Take();
  };
  const Comparison c = RelatedRecords(run(true), run(false));
  EXPECT_EQ(test::First(c), "none");
  EXPECT_EQ(DescribeRewrites(c, RegionsOf(c)), "1 rewrite: gelu for erf, mul");
  Dump killed = run(true);
  killed.complete = false;
  const Comparison cut = RelatedRecords(std::move(killed), run(false));
  EXPECT_EQ(DescribeRewrites(cut, RegionsOf(cut)), "");
}

// Gradients of parameters are listed before the backward calls that made them: what enters the
// first of these is named, and no list.
TEST(RelationsOfRecords, AGradientThatEntersTheLastModuleIsNamedThere) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Module.a.Linear.forward.0").In(Value(1)).Out(Value(2));
    b.Call("Module.b.LayerNorm.forward.0").In(Value(2)).Out(Value(3));
    b.Call("Module.c.Linear.forward.0").In(Value(3)).Out(Value(4));
    b.Call("Module.b.LayerNorm.parameters_grad.0").Grad("weight", Value(20, error));
    b.Call("Module.c.Linear.backward.0").In(Value(11, error)).Out(Value(12, error));
    b.Call("Module.b.LayerNorm.backward.0").In(Value(12, error)).Out(Value(13, error));
    b.Call("Module.a.Linear.parameters_grad.0").Grad("weight", Value(14, error));
    b.Call("Module.a.Linear.backward.0").In(Value(13, error)).Out(Value(15, error));
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(kWrong), run(0)), "Module.c.Linear.backward.0");
}

TEST(RelationsOfRecords, DumpsWithNothingInCommonAreNotJudged) {
  DumpBuilder t, g;
  t.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(2));
  g.Call("Functional.linear.0.forward").In(Value(3)).Out(Value(4));
  EXPECT_EQ(FirstOfRecords(t.Take(), g.Take()), "none");
}

// A golden that was killed: what the target does after its last call is missing nowhere.
TEST(RelationsOfRecords, ARunThatWasKilledTellsNothingOfLaterCalls) {
  const auto run = [](bool killed, double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(3, error));
    if (!killed) b.Call("Functional.relu.0.forward").In(Value(3, error)).Out(Value(4, error));
    b.dump().complete = !killed;
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(false, 0), run(true, 0)), "none");
  EXPECT_EQ(FirstOfRecords(run(false, kWrong), run(true, 0)), "Functional.gelu.0.forward");
}

// MindSpore lists a backward call when it ends; its result was taken before.
TEST(RelationsOfRecords, ABackwardCallThatIsListedLateMadeWhatOthersTook) {
  const auto run = [](bool late, double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Functional.mse_loss.0.forward").In(Value(2)).Out(Value(3).Shape("[]"));
    const auto loss = [&] {
      b.Call("Functional.mse_loss.0.backward").In(Numbers(1, 1, 1, 1)).Out(Value(4, error));
    };
    if (!late) loss();
    b.Call("Functional.linear.0.backward").In(Value(4, error)).Out(Value(5, error));
    if (late) loss();
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(true, 0), run(false, 0)), "none");
  EXPECT_EQ(FirstOfRecords(run(true, kWrong), run(false, 0)), "Functional.mse_loss.0.backward");
}

// Two arguments that only the target passes: ones change nothing.
TEST(RelationsOfRecords, OfTwoConstantsTheOneThatIsNotNeutralIsNamed) {
  const auto run = [](bool target) {
    const auto all = [](double number) { return Numbers(number, number, number, 2 * number); };
    DumpBuilder b;
    if (target) {
      b.Call("Functional.ones_like.0.forward").In(Value(1)).Out(all(1));
      b.Call("Functional.full_like.0.forward").In(Value(1)).Out(all(2));
    }
    b.Call("Functional.cross_entropy.0.forward").In(Value(1)).In(Value(2));
    if (target) b.In(all(1)).In(all(2));
    b.Out(Value(3, target ? kWrong : 0));
    return b.Take();
  };
  EXPECT_EQ(FirstOfRecords(run(true), run(false)), "Functional.full_like.0.forward");
}

TEST(RelationsOfRecords, OtherElementsOfTheSameStatisticsAreOtherData) {
  const auto run = [](const char* print, double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1).Print(print));
    b.Out(Value(2, error).Print(error > 0 ? "out1" : "out2"));
    return b.Take();
  };
  const Comparison c = RelatedRecords(run("flipped", kWrong), run("data", 0));
  EXPECT_EQ(test::First(c), "Functional.linear.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("input.0 has the same statistics, and other elements"));
}

}  // namespace
}  // namespace msprobe::compare
