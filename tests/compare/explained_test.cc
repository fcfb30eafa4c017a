// Differences that rounding, a coarser dtype or a missing value explains, and errors that they must
// not hide.
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
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

TEST(ExplainedTest, ACoarserDTypeIsNoExcuseForAnotherArgument) {
  const auto with_alpha = [](Dump dump, const char* alpha) {
    DumpBuilder b;
    b.dump() = std::move(dump);
    return b.Value("alpha", "float", alpha).Take();
  };
  const Comparison c = MustCompare(with_alpha(ProductIn("torch.bfloat16", 1e-3), "2.0"),
                                   with_alpha(ProductIn("torch.float32", 0), "1.0"));
  EXPECT_EQ(First(c), "Tensor.__add__.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("the call itself was made differently"));
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

}  // namespace
}  // namespace msprobe::compare
