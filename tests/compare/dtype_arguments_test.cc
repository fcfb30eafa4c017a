#include "engine/compare/measure/dtype_arguments.h"

#include <gmock/gmock.h>

#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// linear, then softmax with a dtype argument, then a cast back: the result is rounding apart.
Dump OneRun(const char* linear, const char* argument) {
  const bool half = std::string_view(argument) == "torch.bfloat16";
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1).Print("1"));
  b.Out(Value(2).DType(linear).Print(linear));
  b.Call("Functional.softmax.0.forward").In(Value(2).DType(linear).Print(linear));
  b.Value("dtype", "torch.dtype", argument);
  b.Out(Value(3, half ? 1e-3 : 0).DType(argument).Print(argument));
  b.Call("Tensor.to.0.forward").In(Value(3, half ? 1e-3 : 0).DType(argument).Print(argument));
  b.Out(Value(3, half ? 1e-3 : 0).Print(argument + std::string("32")));
  return b.Take();
}

TEST(DTypeArgumentsTest, TheFirstPlaceWhereDTypesDifferIsMadeDifferently) {
  const Comparison c =
      ByRules(OneRun("torch.float32", "torch.bfloat16"), OneRun("torch.float32", "torch.float32"));
  EXPECT_EQ(First(c), "Functional.softmax.0.forward");
  EXPECT_THAT(c.first.why,
              HasSubstr("is \"torch.bfloat16\" in the target, \"torch.float32\" in the golden"));
}

TEST(DTypeArgumentsTest, ARunInAnotherDTypePassesItOn) {
  const Comparison c = MustCompare(OneRun("torch.bfloat16", "torch.bfloat16"),
                                   OneRun("torch.float32", "torch.float32"));
  EXPECT_EQ(First(c), "none");
}

TEST(SameStatisticsTest, ACallOfOneSideThatMovesElementsIsNamed) {
  const auto run = [](bool flips) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1).Print("1")).Out(Value(2).Print("2"));
    if (flips) b.Call("Tensor.flip.0.forward").In(Value(2).Print("2")).Out(Value(2).Print("2f"));
    b.Call("Functional.dropout.0.forward").In(Value(2).Print(flips ? "2f" : "2"));
    b.Out(Value(3, flips ? kWrong : 0).Print(flips ? "3f" : "3"));
    return b.Take();
  };
  const Comparison c = ByRules(run(true), run(false));
  EXPECT_EQ(First(c), "Tensor.flip.0.forward");
  EXPECT_THAT(c.first.why, HasSubstr("input.0 has the same statistics, and other elements"));
}

}  // namespace
}  // namespace msprobe::compare::test
