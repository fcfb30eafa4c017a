// One batch in another number of parts: all parts together are judged.

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <string_view>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

// A tensor of eight rows, times `size`, or one of its two halves.
Tensor Rows(int parts, int part, double size, double error = 0) {
  const Tensor numbers = parts == 1  ? Numbers(5 * size, -3 * size, 0.5 * size, 10 * size)
                         : part == 0 ? Numbers(5 * size, -1 * size, 0.75 * size, 8 * size)
                                     : Numbers(2 * size, -3 * size, 0.25 * size, 6 * size);
  return Scaled(numbers, error).Shape(parts == 1 ? "[8, 4]" : "[4, 4]");
}

struct Wrong {
  double first = 0;     // error of the results of the first module, in the last part
  double gradient = 0;  // of the gradient of its weight
  double weight = 0;    // of the weight of the second module, in the last part
};

// Two modules that are called once for each part of the batch; the gradients add up.
Dump Model(int parts, const Wrong& wrong = {}) {
  DumpBuilder b;
  for (int i = 0; i < parts; ++i) {
    const bool last = i + 1 == parts;
    const std::string at = std::to_string(i);
    const double first = last ? wrong.first : 0;
    b.Call("Module.first.Linear.forward." + at).In(Rows(parts, i, 1));
    b.Out(Rows(parts, i, 2, first)).Parameter("weight", Value(3));
    b.Call("Module.second.Linear.forward." + at).In(Rows(parts, i, 2, first));
    b.Out(Rows(parts, i, 3, first)).Parameter("weight", Value(4, last ? wrong.weight : 0));
    b.Call("Module.first.Linear.backward." + at).In(Rows(parts, i, 4)).Out(Rows(parts, i, 5));
    b.Call("Module.first.Linear.parameters_grad." + at);
    b.Grad("weight", last ? Value(6, wrong.gradient) : Value(7));
  }
  return b.Take();
}

TEST(BatchParts, PartsThatAgreeTogetherAreNoDifference) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Model(swap ? 1 : 2), Model(swap ? 2 : 1));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  }
}

// One run has the call twice, on halves of other data. Nothing agrees when it is put together, so
// nothing says that a batch was divided.
TEST(BatchParts, OtherShapesAloneAreNoParts) {
  const auto run = [](int calls, double size) {
    DumpBuilder b;
    for (int i = 0; i < calls; ++i) {
      b.Call("Functional.relu." + std::to_string(i) + ".forward").In(Rows(calls, i, size));
      b.Out(Rows(calls, i, 2 * size));
    }
    return b.Take();
  };
  const Comparison c = MustCompare(run(2, 1), run(1, 3));
  EXPECT_THAT(c.first.why.English(),
              ::testing::HasSubstr("has shape [4, 4] in the target, [8, 4] in"));
  EXPECT_THAT(c.first.why.English(), ::testing::Not(::testing::HasSubstr("parts of the batch")));
}

TEST(BatchParts, TheSumOfTheGradientsMustAgree) {
  const Comparison c = MustCompare(Model(2, {.gradient = kWrong}), Model(1));
  EXPECT_EQ(First(c), "Module.first.Linear.parameters_grad.0") << c.first.why.English();
}

// One backward pass, or two that add up: shapes are equal, and one run has an entry more.
TEST(BatchParts, OfTwoBackwardPassesTheLastGradientCounts) {
  const auto run = [](int passes, double error) {
    DumpBuilder b;
    b.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(2));
    for (int i = 0; i < passes; ++i) {
      b.Call("Module.fc.Linear.parameters_grad." + std::to_string(i));
      b.Grad("weight", i + 1 == passes ? Value(3, error) : Value(7));
    }
    return b.Take();
  };
  EXPECT_EQ(First(MustCompare(run(2, 0), run(1, 0))), "none");
  EXPECT_EQ(First(MustCompare(run(2, kWrong), run(1, 0))), "Module.fc.Linear.parameters_grad.0");
}

}  // namespace
}  // namespace msprobe::compare::test
