
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// each = mean(x); loss = mean(each * weight). `reshaped`: the shape to which a call in between
// brings `each`, that only this run makes; "": there is none. The product is [8, 8] where `each` is
// [8, 1].
Dump WeightedShape(std::string reshaped) {
  DumpBuilder b;
  b.Call("Tensor.mean.0.forward").In(Value(1).Shape("[8, 5]")).Out(Value(2).Shape("[8]"));
  if (!reshaped.empty()) {
    b.Call("Tensor.reshape.0.forward").In(Value(2).Shape("[8]")).Out(Value(2).Shape(reshaped));
    b.At("train.py", 14, "each = each.reshape(shape)");
  }
  const bool wide = reshaped == "[8, 1]";
  b.Call("Tensor.__mul__.0.forward");
  b.In(Value(2).Shape(reshaped.empty() ? "[8]" : reshaped)).In(Value(3).Shape("[8]"));
  b.Out(Value(wide ? 14 : 4).Shape(wide ? "[8, 8]" : "[8]"));
  b.Call("Tensor.mean.1.forward").In(Value(wide ? 14 : 4).Shape(wide ? "[8, 8]" : "[8]"));
  b.Out(Value(wide ? 15 : 5).Shape("[]"));
  return b.Take();
}

TEST(ShapeEffects, AReshapeThatMakesTheNextCallBroadcast) {
  for (const bool swap : {false, true}) {
    const Comparison c =
        MustCompare(WeightedShape(swap ? "" : "[8, 1]"), WeightedShape(swap ? "[8, 1]" : ""));
    EXPECT_EQ(First(c), "Tensor.reshape.0.forward") << c.first.why.English();
    EXPECT_THAT(c.first.why.English(),
                HasSubstr(swap ? "shape [8] in the target, [8, 1] in the golden"
                               : "shape [8, 1] in the target, [8] in the golden"));
    EXPECT_THAT(c.first.source_line, HasSubstr("train.py:14"));
  }
}

TEST(ShapeEffects, AReshapeToTheSameShape) {
  EXPECT_EQ(First(MustCompare(WeightedShape("[8]"), WeightedShape(""))), "none");
}

// x.mean(1, keepdim), then relu, then softmax over dimension 0. The target's x keeps a dimension.
// `effect`: the softmax is over the last dimension, which is another one then.
Dump Kept(bool kept, bool effect) {
  const std::string shape = kept ? "[8, 1]" : "[8]";
  const int result = effect && kept ? 24 : 4;
  DumpBuilder b;
  b.Call("Tensor.mean.0.forward").In(Value(1).Shape("[8, 5]"));
  b.Value("keepdim", "bool", kept ? "True" : "False").Out(Value(2).Shape(shape));
  b.Call("Functional.relu.0.forward").In(Value(2).Shape(shape)).Out(Value(3).Shape(shape));
  b.Call("Functional.softmax.0.forward").In(Value(3).Shape(shape)).Out(Value(result).Shape(shape));
  b.Call("Tensor.sum.0.forward").In(Value(result).Shape(shape)).Out(Value(result + 1).Shape("[]"));
  return b.Take();
}

// Both runs compute the same, and one of them keeps a dimension on the way.
TEST(ShapeEffects, AShapeWithoutEffect) {
  const Comparison c = MustCompare(Kept(true, false), Kept(false, false));
  for (const Measure& m : c.measures) EXPECT_NE(m.reason, Reason::kShapeDiffers);
}

// Another argument is reason enough: the shapes are not looked at.
TEST(ShapeEffects, AnArgumentThatDiffersToo) {
  const auto norm = [](bool kept, const char* eps, int result) {
    DumpBuilder b;
    const std::string shape = kept ? "[1, 8]" : "[8]";
    b.Call("Tensor.tanh.0.forward").In(Value(1).Shape(shape)).Out(Value(2).Shape(shape));
    b.Call("Functional.layer_norm.0.forward").In(Value(2).Shape(shape));
    b.Value("eps", "float", eps).Out(Value(result).Shape(shape));
    return b.Take();
  };
  const Comparison c = MustCompare(norm(true, "0.001", 7), norm(false, "1e-05", 3));
  EXPECT_EQ(First(c), "Functional.layer_norm.0.forward") << c.first.why.English();
}

// A tensor of one element: [1] beside [] never changes what is computed.
TEST(ShapeEffects, OneElement) {
  const auto scaled = [](const char* shape, int result) {
    DumpBuilder b;
    b.Call("Tensor.exp.0.forward").In(Value(1).Shape(shape)).Out(Value(2).Shape(shape));
    b.Call("Tensor.__mul__.0.forward").In(Value(3).Shape("[8]")).In(Value(2).Shape(shape));
    b.Out(Value(result).Shape("[8]"));
    return b.Take();
  };
  const Comparison c = MustCompare(scaled("[1]", 9), scaled("[]", 4));
  EXPECT_EQ(First(c), "Tensor.__mul__.0.forward") << c.first.why.English();
}

}  // namespace
}  // namespace msprobe::compare::test
