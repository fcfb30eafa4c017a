// Weights that one run has in another form: in several modules, or transposed.
#include "engine/compare/regions/joined_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

int64_t Rows(const Comparison& c, Reason reason) {
  return std::count_if(c.measures.begin(), c.measures.end(),
                       [&](const Measure& m) { return m.reason == reason; });
}

// The two halves of a gated layer, or one layer with both. `around`: the module of the second half.
Dump Gated(bool joined, double error = 0, const std::string& around = "mlp") {
  DumpBuilder b;
  const auto layer = [&](const std::string& name, const Tensor& weight, const Tensor& result) {
    b.Call("Module." + name + ".Linear.forward.0").In(Value(1)).Parameter("weight", weight);
    b.Out(result);
  };
  if (joined) {
    layer("mlp.gate_up", Numbers(3, -2, 0.2, 5).Shape("[6, 3]"), Value(2).Shape("[2, 6]"));
  } else {
    layer("mlp.gate", Numbers(3, -1, 0.3, 4).Shape("[3, 3]"), Value(3));
    layer(around + ".up", Scaled(Numbers(1, -2, 0.1, 3).Shape("[3, 3]"), error), Value(4));
  }
  b.Call("Module.mlp.Gated.forward.0").In(Value(1)).Out(Value(5));
  return b.Take();
}

TEST(JoinedWeights, OfModulesBesideEachOther) {
  for (const bool swap : {false, true}) {
    const Comparison c = ByRules(Gated(!swap), Gated(swap));
    EXPECT_EQ(Rows(c, Reason::kOtherParts), 2) << swap;
    const Comparison wrong = ByRules(Gated(!swap, kWrong), Gated(swap, kWrong));
    EXPECT_EQ(Rows(wrong, Reason::kOtherParts), 0) << swap;
    const Comparison elsewhere = ByRules(Gated(!swap, 0, "other"), Gated(swap, 0, "other"));
    EXPECT_EQ(Rows(elsewhere, Reason::kOtherParts), 0) << swap;
  }
}

// A layer that multiplies by W, or by the transpose of W.
Dump Layer(const char* shape, double error = 0) {
  const auto matrix = [&](int id, double by) { return Value(id, by).Shape(shape); };
  DumpBuilder b;
  b.Call("Module.fc.Linear.forward.0").In(Value(1)).Parameter("weight", matrix(2, error));
  b.Out(Value(3));
  b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", matrix(4, 0));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.fc.weight", matrix(4, 0));
  b.Kwarg("weights.fc.weight", matrix(2, error));
  b.OutAt("0.weights.fc.weight", matrix(5, 0));
  return b.Take();
}

TEST(JoinedWeights, TheTransposeOfAWeight) {
  const Comparison c = ByRules(Layer("[4, 3]"), Layer("[3, 4]"));
  EXPECT_EQ(Rows(c, Reason::kTransposed), 5);
  EXPECT_EQ(First(c), "none") << c.first.why;
  EXPECT_EQ(Rows(ByRules(Layer("[4, 3]", kWrong), Layer("[3, 4]")), Reason::kTransposed), 3);
  EXPECT_EQ(Rows(ByRules(Layer("[6, 2]"), Layer("[3, 4]")), Reason::kTransposed), 0);
  // Another tensor than a weight may have the same numbers by chance.
  const auto taken = [](const char* shape) {
    return DumpBuilder().Call("Torch.f.0.forward").In(Value(1).Shape(shape)).Out(Value(2)).Take();
  };
  EXPECT_EQ(Rows(ByRules(taken("[4, 3]"), taken("[3, 4]")), Reason::kTransposed), 0);
}

}  // namespace
}  // namespace msprobe::compare::test
