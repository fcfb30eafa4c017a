// Differences that rounding, a coarser dtype or a missing value explains, and errors that they must
// not hide.
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::ByRules;
using test::DumpBuilder;
using test::First;
using test::kRounding;
using test::kWrong;
using test::MustCompare;
using test::Value;
using ::testing::HasSubstr;

// A product in `dtype` that is wrong by `error`, and a sum in float32 that uses it.
Dump ProductIn(const std::string& dtype, double error) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2, error).DType(dtype));
  b.Call("Tensor.__add__.0.forward")
      .In(Value(3))
      .In(Value(2, error).DType(dtype))
      .Out(Value(4, error));
  return b.Take();
}

TEST(ExplainedTest, DifferencesOfACoarserDTypeAreRounding) {
  for (const bool target : {true, false}) {
    Dump coarse = ProductIn("torch.bfloat16", 1e-3), fine = ProductIn("torch.float32", 0);
    const Comparison c = target ? ByRules(std::move(coarse), std::move(fine))
                                : ByRules(std::move(fine), std::move(coarse));
    EXPECT_EQ(First(c), "none");
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
    EXPECT_EQ(c.measures.back().reason, Reason::kCoarserBefore);
    EXPECT_THAT(c.run_start.settings,
                HasSubstr(target ? "the target computes in bfloat16 where the golden has float32, "
                                   "from Functional.linear.0.forward on"
                                 : "the golden computes in bfloat16"));
  }
  const Comparison c = ByRules(ProductIn("torch.bfloat16", 0.5), ProductIn("torch.float32", 0));
  EXPECT_EQ(First(c), "Functional.linear.0.forward") << "too large for that";
  // A format of single tensors says nothing about what is computed from them.
  const Comparison scaled =
      ByRules(ProductIn("torch.float8_e5m2", 1e-3), ProductIn("torch.float32", 0));
  EXPECT_EQ(First(scaled), "Tensor.__add__.0.forward");
}

TEST(ExplainedTest, ACoarserDTypeIsNoExcuseForAnotherArgument) {
  const auto with_alpha = [](Dump dump, const char* alpha) {
    DumpBuilder b;
    b.dump() = std::move(dump);
    return b.Value("alpha", "float", alpha).Take();
  };
  const Comparison c = MustCompare(with_alpha(ProductIn("torch.bfloat16", 1e-3), "2.0"),
                                   with_alpha(ProductIn("torch.float32", 0), "1.0"));
  EXPECT_EQ(First(c), "Tensor.__add__.0.forward");
  EXPECT_THAT(c.first.why, HasSubstr("the call itself was made differently"));
}

// Both runs: a product in bfloat16, a cast to float32, and what is computed from that. `fresh`: the
// error of a call that nothing of bfloat16 goes into.
Dump CastUp(double error, double fresh = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2, error).DType("torch.bfloat16"));
  b.Call("Tensor.float.0.forward").In(Value(2, error).DType("torch.bfloat16")).Out(Value(2, error));
  b.Call("Functional.softmax.0.forward").In(Value(2, error)).Out(Value(3, error));
  b.Call("Torch.cos.0.forward").In(Value(4).Print("angles")).Out(Value(5, fresh));
  return b.Take();
}

TEST(ExplainedTest, NoiseKeepsTheDTypeThatItWasMadeIn) {
  const Comparison c = ByRules(CastUp(1e-3), CastUp(0));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(c.measures[3].reason, Reason::kCoarserBefore);
  EXPECT_EQ(c.measures[5].reason, Reason::kCoarserBefore);
  EXPECT_LT(c.measures[5].severity, 1) << "in roundings of bfloat16";
  EXPECT_EQ(First(ByRules(CastUp(0.1), CastUp(0))), "Functional.linear.0.forward");
}

TEST(ExplainedTest, NoiseOfACoarserDTypeExcusesOnlyWhatUsesIt) {
  EXPECT_EQ(First(MustCompare(CastUp(1e-3, 1e-3), CastUp(0))), "Torch.cos.0.forward");
}

TEST(ExplainedTest, ComplexNumbersKeepTheNoiseOfTheirParts) {
  const auto rotated = [](double error) {
    DumpBuilder b;
    b.dump() = CastUp(error);
    b.Call("Torch.view_as_complex.0.forward")
        .In(Value(2, error))
        .Out(Value(6, error).DType("torch.complex64"));
    return b.Take();
  };
  EXPECT_EQ(First(MustCompare(rotated(1e-3), rotated(0))), "none");
}

// A gradient that autograd added up is the output of no recorded call.
TEST(ExplainedTest, WhatCannotBeFollowedHasTheCoarsestNoiseSoFar) {
  const auto backward = [](double error) {
    DumpBuilder b;
    b.dump() = CastUp(error);
    b.Call("Torch.mul.0.backward").In(Value(7, error)).Out(Value(8, error));
    b.Call("Module.norm.Norm.parameters_grad.0").Grad("weight", Value(9, error));
    return b.Take();
  };
  EXPECT_EQ(First(MustCompare(backward(1e-3), backward(0))), "none");
}

// At level L0 the cast inside the module is not recorded.
TEST(ExplainedTest, AModuleComputesInTheDTypesOfItsParameters) {
  const auto model = [](double error) {
    DumpBuilder b;
    b.Call("Module.model.Model.forward.0")
        .In(Value(1).DType("torch.int64").Print("ids"))
        .Parameter("weight", Value(2).DType("torch.bfloat16").Print("weight"))
        .Out(Value(3, error));
    return b.Take();
  };
  EXPECT_EQ(First(MustCompare(model(1e-3), model(0))), "none");
}

// Adam divides a gradient by its own size. If the gradient should be zero, this enlarges rounding.
// `cleared`: a second parameter whose gradient was cleared by mistake.
Dump OptimizerStep(double rounding, double enlarged, bool cleared = false) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1, rounding)).Out(Value(2, rounding));
  b.Call("Tensor.addcdiv_.0.forward").In(Value(3, rounding)).Out(Value(4, enlarged));
  b.Call("Tensor.lerp_.0.forward").In(Value(5)).In(Value(6, cleared ? kWrong : 0));
  b.Out(Value(7, cleared ? kWrong : 0));
  return b.Take();
}

TEST(ExplainedTest, RoundingThatOnlyAnOptimizerEnlargesIsNoDifference) {
  const Comparison c = ByRules(OptimizerStep(kRounding, 60 * kRounding), OptimizerStep(0, 0));
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.classes[1], CallClass::kNoise);
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
  const Comparison more = ByRules(OptimizerStep(kRounding, 6000 * kRounding), OptimizerStep(0, 0));
  EXPECT_EQ(First(more), "Tensor.addcdiv_.0.forward");
  const Comparison none = ByRules(OptimizerStep(0, 60 * kRounding), OptimizerStep(0, 0));
  EXPECT_EQ(First(none), "Tensor.addcdiv_.0.forward");
}

TEST(ExplainedTest, EnlargedRoundingDoesNotHideAnError) {
  const Comparison c = ByRules(OptimizerStep(kRounding, 60 * kRounding, true), OptimizerStep(0, 0));
  EXPECT_EQ(First(c), "Tensor.lerp_.0.forward");
  EXPECT_EQ(c.classes[1], CallClass::kNoise);
  EXPECT_TRUE(c.runners_up.empty());
}

// A bias that one side does not have.
Dump Convolution(bool bias, Dialect dialect) {
  DumpBuilder b;
  b.dump().dialect = dialect;
  b.Call("Functional.conv2d.0.forward").In(Value(1)).In(Value(2));
  bias ? b.In(Value(3)) : b.Null();
  b.Out(Value(4, bias ? kWrong : 0));
  return b.Take();
}

TEST(ExplainedTest, NoneInPlaceOfATensorIsADifference) {
  const Comparison c =
      ByRules(Convolution(true, Dialect::kMsprobe27), Convolution(false, Dialect::kMsprobe27));
  EXPECT_THAT(c.first.why, HasSubstr("input.2 is torch.float32 in the target, None in the golden"));
  EXPECT_GT(c.first.confidence, 0.8);
  // None in a dump of another tool proves nothing: the tool may not record such values.
  const Comparison other =
      ByRules(Convolution(true, Dialect::kMsprobe27), Convolution(false, Dialect::kPtdbg1To4));
  EXPECT_EQ(other.measures[2].verdict, RowVerdict::kUnknown);
}

// A discriminator's call on a picture that is cut from the generator's graph, or not.
Dump Discriminated(bool detached) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
  b.Call("Functional.linear.1.forward").In(Value(2));
  b.last().requires_grad = detached ? "False" : "True";
  b.Out(Value(3));
  b.Call("Functional.linear.1.backward").In(Value(4));
  if (detached)
    b.Null(Slot::kOutput);
  else
    b.Out(Value(5));
  if (!detached) b.Call("Functional.linear.0.backward").In(Value(5)).Out(Value(8));
  b.Call("Module.generator.Linear.parameters_grad.0");
  b.Grad("weight", Value(6, detached ? 0 : kWrong));
  return b.Take();
}

TEST(ExplainedTest, AGradientThatOneRunDoesNotWant) {
  for (const bool target : {true, false}) {
    const Comparison c = ByRules(Discriminated(!target), Discriminated(target));
    EXPECT_EQ(First(c), "Functional.linear.1.backward");
    EXPECT_THAT(c.first.why, HasSubstr(target ? "requires a gradient in the target only"
                                              : "requires a gradient in the golden only"));
  }
}

}  // namespace
}  // namespace msprobe::compare
