// Weights that one run has in another form: in several modules, or transposed.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

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
    const Comparison c = MustCompare(Gated(!swap), Gated(swap));
    const Comparison wrong = MustCompare(Gated(!swap, kWrong), Gated(swap, kWrong));
    const Comparison elsewhere = MustCompare(Gated(!swap, 0, "other"), Gated(swap, 0, "other"));
  }
}

}  // namespace
}  // namespace msprobe::compare::test
