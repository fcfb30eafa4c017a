// What an optimizer makes of gradients, and what a step leaves to the next one.
#include <gtest/gtest.h>

#include "engine/compare/relations/carried.h"
#include "tests/compare/dump_builder.h"
#include "tests/compare/matrix_runs.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::relations {
namespace {

// A gradient that was divided by a norm, whose rounding all elements share, and its squares.
Dump Squared(float off, float wrong) {
  const Matrix gradient = Matrix::Random(512, 1).Map([&](float v) { return v * (1 + off); });
  const Matrix squares = gradient.Map([&](float v) { return v * v * (1 + wrong); });
  DumpBuilder b;
  b.Call("Optimizer.AdamW.step.0.forward").Kwarg("gradients.w", gradient.Recorded());
  Sketch(b, gradient);
  b.OutAt("0.state.w.exp_avg_sq", squares.Recorded());
  Sketch(b, squares);
  return b.Take();
}

TEST(Optimizers, SumsOfSquaresShowWhatAllElementsShare) {
  const auto calm = [](float wrong) {
    return test::MustCompare(Squared(0x1p-22F, wrong), Squared(0, 0)).first.pair < 0;
  };
  EXPECT_TRUE(calm(0));
  EXPECT_FALSE(calm(1e-4F));
}

// A step of an optimizer, and the call of the next step that takes the weight.
Dump Updated(const Matrix& weight, const Matrix& gradient, bool momentum = false) {
  DumpBuilder b;
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", gradient.Recorded());
  b.Kwarg("weights.w", weight.Recorded());
  Matrix after = weight;
  for (size_t i = 0; i < after.x.size(); ++i) after.x[i] -= gradient.x[i];
  b.OutAt("0.weights.w", after.Recorded());
  if (momentum) b.OutAt("0.state.w.momentum_buffer", gradient.Recorded());
  return b.Take();
}

// The first average of gradients is the gradient, which no recorded call made.
TEST(Carried, AStateThatIsTheGradientItselfIsLeft) {
  const Matrix weight = Matrix::Random(kRows, 1), gradient = Matrix::Random(kRows, 2);
  const Matrix rounded = gradient.Map([](float v) { return v * (1 + 0x1p-22F); });
  const Runs first(Updated(weight, rounded, true), Updated(weight, gradient, true));
  EXPECT_EQ(LeaveBehind(first.relations).left.size(), 2U);
}

TEST(Carried, AWeightBeginsAStepWithTheErrorWithWhichItWasLeft) {
  const Matrix weight = Matrix::Random(kRows, 1), gradient = Matrix::Random(kRows, 2);
  const Matrix rounded = gradient.Map([](float v) { return v * (1 + 0x1p-22F); });
  const Runs first(Updated(weight, rounded), Updated(weight, gradient));
  const Carried left = LeaveBehind(first.relations);
  ASSERT_EQ(left.left.size(), 1U);
  const auto next = [&](const Matrix& moved_by) {
    Matrix after = weight;
    for (size_t i = 0; i < after.x.size(); ++i) after.x[i] -= moved_by.x[i];
    DumpBuilder b;
    b.Call("Torch.f.0.forward").In(after.Recorded());
    return b.Take();
  };
  const Runs second(next(rounded), next(gradient), left);
  const Relation& r = second.relations.of(second.target.Takes(0)[0].value);
  EXPECT_EQ(r.proof, Proof::kLeftSo);
  EXPECT_EQ(r.strength, Strength::kNear);
  EXPECT_EQ(r.error, left.left.begin()->second.error);
  EXPECT_GT(r.error, 0);
}

// A layer takes rows of a weight, which code without records cut out; `same`: of this weight.
TEST(Views, ASliceOfAWeightIsMadeOfIt) {
  Matrix weight = Matrix::Random(kRows, 1);
  weight.x.back() = 9;
  const Matrix slice = weight.Take({2, 3, 4, 5, 6, 7}), gradient = Matrix::Random(6, 2);
  for (const bool same : {true, false}) {
    const Matrix given = same ? slice : slice.Map([](float v) { return v / 2; });
    const auto run = [&] {
      DumpBuilder b;
      b.Call("Module.m.Net.forward.0").Parameter("w", weight.Recorded());
      b.Call("Torch.tanh.0.forward").In(given.Recorded()).Out(given.Recorded().Print("t"));
      b.Call("Torch.tanh.0.backward").In(gradient.Recorded().Print("g")).Out(gradient.Recorded());
      return b.Take();
    };
    const Runs runs(run(), run());
    const Graph& t = runs.target;
    const ValueId cut = t.Takes(1)[0].value, whole = t.Takes(0)[0].value;
    const Inputs inputs = t.InputsOf(cut, /*saved=*/false);
    EXPECT_EQ(std::count(inputs.begin(), inputs.end(), whole), same ? 1 : 0);
    EXPECT_EQ(t.GradientsOf(whole).size(), same ? 1U : 0U);
  }
}

}  // namespace
}  // namespace msprobe::compare::relations
