#include "engine/compare/measure/dtype_arguments.h"

#include <gmock/gmock.h>

#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

// linear, then softmax with a dtype argument, then a cast back: the result is rounding apart.
Dump RunWithDtypes(const char* linear, const char* argument) {
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

TEST(DTypeArgumentsTest, ARunInAnotherDTypePassesItOn) {
  const Comparison c = MustCompare(RunWithDtypes("torch.bfloat16", "torch.bfloat16"),
                                   RunWithDtypes("torch.float32", "torch.float32"));
  EXPECT_EQ(First(c), "none");
}

}  // namespace
}  // namespace msprobe::compare::test
