
#include <gmock/gmock.h>

#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

Tensor ValueOf(int id, const char* shape, double error = 0) {
  return Value(id, error).Shape(shape);
}

// A product of x and a factor. The target computes the factor, the golden has it, and transposes x
// first: the two products are paired, and have other shapes.
Dump NewProduct(bool own, double error) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(ValueOf(0, "[4, 3]")).Out(ValueOf(1, "[2, 3]"));
  if (own) {
    b.Call("Torch.arange.0.forward").Out(ValueOf(20, "[3]"));
    b.Call("Torch.pow.0.forward").In(ValueOf(20, "[3]")).Out(ValueOf(21, "[3]"));
    b.Call("Tensor.mul.0.forward")
        .In(ValueOf(1, "[2, 3]"))
        .In(ValueOf(21, "[3]"))
        .Out(ValueOf(22, "[2, 3]"));
    b.Call("Tensor.view.0.forward").In(ValueOf(22, "[2, 3]")).Out(ValueOf(5, "[3, 2]", error));
  } else {
    b.Call("Torch.arange.0.forward").Out(ValueOf(20, "[3]"));
    b.Call("Tensor.transpose.0.forward").In(ValueOf(1, "[2, 3]")).Out(ValueOf(31, "[3, 2]"));
    b.Call("Tensor.mul.0.forward")
        .In(ValueOf(31, "[3, 2]"))
        .In(ValueOf(30, "[3, 1]"))
        .Out(ValueOf(5, "[3, 2]"));
  }
  b.Call("Torch.matmul.0.forward").In(ValueOf(5, "[3, 2]", error)).Out(ValueOf(6, "[3, 3]", error));
  return b.Take();
}

TEST(NewValues, NoneWhereAllAgrees) {
  EXPECT_EQ(First(MustCompare(NewProduct(true, 0), NewProduct(false, 0))), "none");
}

TEST(NewValues, NoneWithoutACallOfTheTargetsOwn) {
  DumpBuilder t, g;
  t.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  t.Call("Functional.relu.0.forward").In(Value(1)).Out(Value(3));
  g.Call("Functional.linear.0.forward").In(Value(0)).Out(Value(1));
  g.Call("Torch.sin.0.forward").In(Value(1)).Out(Value(2));
  g.Call("Functional.relu.0.forward").In(Value(2)).Out(Value(4));
  EXPECT_EQ(First(MustCompare(t.Take(), g.Take())), "Torch.sin.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::test
