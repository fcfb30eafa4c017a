// Parameters that have other names in the optimizer's entry of the other run: their weights tell
// which is which, and their gradients and state follow (PairRenamedParameters in align_leaves.cc).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

struct Parameter {
  std::string name;
  int value = 0;
  double error = 0;  // of its weight
};

Dump StepWith(const std::vector<Parameter>& parameters) {
  DumpBuilder b;
  b.Call("Optimizer.Adam.step.0.forward");
  for (const auto& [name, value, error] : parameters) {
    b.Kwarg("gradients." + name, Value(10 * value));
  }
  for (const auto& [name, value, error] : parameters) {
    b.Kwarg("weights." + name, Value(value, error));
    b.Kwarg("state." + name + ".exp_avg", Value(20 * value));
  }
  for (const auto& [name, value, error] : parameters)
    b.OutAt("0.weights." + name, Value(30 * value, error));
  return b.Take();
}

// How many values are beside one that is equal.
int Equal(const Comparison& c) {
  int equal = 0;
  for (const Measure& m : c.measures) equal += m.verdict == RowVerdict::kEqual;
  return equal;
}

TEST(RenamedParameters, GradientsAndStateFollowTheWeights) {
  const Comparison c = MustCompare(StepWith({{"first.weight", 1}, {"second.weight", 2}}),
                                   StepWith({{"1.weight", 2}, {"0.weight", 1}}));
  EXPECT_EQ(Equal(c), 8);
  EXPECT_EQ(c.rows.size(), 8u);
}

TEST(RenamedParameters, WeightsThatRoundArePairedToo) {
  const Comparison c =
      MustCompare(StepWith({{"first.weight", 1, 1e-3}, {"second.weight", 2, 1e-3}}),
                  StepWith({{"1.weight", 2}, {"0.weight", 1}}));
  EXPECT_EQ(Equal(c), 4) << "gradients and state";
}

// Layers that began alike are told apart by their order.
TEST(RenamedParameters, OfEqualWeightsTheOrderTells) {
  const Comparison c =
      MustCompare(StepWith({{"first.weight", 1}, {"second.weight", 1}, {"third.weight", 2}}),
                  StepWith({{"2.weight", 2}, {"0.weight", 1}, {"1.weight", 1}}));
  EXPECT_EQ(Equal(c), 12);
  EXPECT_EQ(c.rows.size(), 12u);
}

}  // namespace
}  // namespace msprobe::compare::test
