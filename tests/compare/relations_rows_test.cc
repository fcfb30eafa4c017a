// Rows that only one run has: a batch that is filled up with samples that count for nothing
// (engine/compare/relations/added_rows.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/compare/by_relations.h"
#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

using test::Elements;
using test::FirstOf;
using test::Recorded;

struct Run {
  bool more = false;     // two samples more, without weight
  int groups = 2;        // of the norm
  bool skips = false;    // the norm takes what its partner's argument was made of
  bool missing = false;  // nothing is multiplied
  bool views = false;    // the batch is told its size
  float factor = 1;      // of what the norm makes
  float first = 1;       // of what the first call makes
};

// What the samples that count make of a weight's gradient.
Elements Counted(const Matrix& m) {
  Elements out(kColumns);
  for (size_t i = 0; i < 6 * static_cast<size_t>(kColumns); ++i) out[i % kColumns] += m.x[i];
  return out;
}

Dump Batch(const Run& run) {
  Matrix x = Matrix::Random(6, 1).Map([&run](float v) { return run.first * v; });
  DumpBuilder b;
  b.Call("Torch.tanh.0.forward");
  In(b, Matrix::Random(6, 3));
  Out(b, x);
  if (run.more) {
    const Matrix more = Matrix::Random(2, 2);
    b.Call("Torch.cat.0.forward");
    In(b, x);
    In(b, more);
    x.x.insert(x.x.end(), more.x.begin(), more.x.end());
    Out(b, x);
  }
  if (run.views) {
    b.Call("Tensor.view.0.forward");
    In(b, x);
    b.Value("1", "int", std::to_string(x.rows()));
    Out(b, x);
  }
  const Matrix y = x.Map([](float v) { return std::max(v, 0.0F); });
  b.Call("Functional.relu.0.forward");
  In(b, x);
  Out(b, y);
  const Matrix z = y.Map([](float v) { return 2 * v; });
  if (!run.missing) {
    b.Call("Tensor.__mul__.0.forward");
    In(b, y);
    b.Value("1", "float", "2.0");
    Out(b, z);
  }
  const Matrix& taken = run.skips || run.missing ? y : z;
  const float groups = run.factor * static_cast<float>(run.groups);
  const Matrix normed = taken.Map([groups](float v) { return std::sin(groups * v); });
  b.Call("Functional.group_norm.0.forward");
  In(b, taken);
  b.Value("1", "int", std::to_string(run.groups));
  Out(b, normed);
  const Elements sum = Counted(normed);
  b.Call("Tensor.sum.0.forward");
  In(b, normed);
  b.Out(Recorded(sum));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(sum));
  return b.Take();
}

std::string FirstBetween(const Run& target, const Run& golden) {
  return FirstOf(Batch(target), Batch(golden));
}

TEST(AddedRows, ThatCountForNothingAreNoDifference) {
  EXPECT_EQ(FirstBetween({.more = true}, {}), "none");
  EXPECT_EQ(FirstBetween({}, {.more = true}), "none");
}

TEST(AddedRows, AnotherArgumentAfterThemIsNamed) {
  EXPECT_EQ(FirstBetween({.more = true, .groups = 1}, {}), "Functional.group_norm.0.forward");
  EXPECT_EQ(FirstBetween({.groups = 1}, {.more = true}), "Functional.group_norm.0.forward");
}

TEST(AddedRows, AnotherValueThatIsTakenAfterThemIsNamed) {
  EXPECT_EQ(FirstBetween({.more = true, .skips = true}, {}), "Functional.group_norm.0.forward");
  EXPECT_EQ(FirstBetween({.more = true, .missing = true}, {}), "Tensor.__mul__.0.forward");
}

TEST(AddedRows, ASizeIsNoOtherArgument) {
  EXPECT_EQ(FirstBetween({.more = true, .groups = 1, .views = true}, {.views = true}),
            "Functional.group_norm.0.forward");
  // 3 and 4 have the ratio of 6 and 8, and are no sizes.
  EXPECT_EQ(FirstBetween({.more = true, .groups = 4}, {.groups = 3}),
            "Functional.group_norm.0.forward");
}

// Nothing but the rows and the numbers differs: where they came in is all that is known.
TEST(AddedRows, AreNamedThemselvesWhereNothingElseIs) {
  EXPECT_EQ(FirstBetween({.more = true, .factor = 3}, {}), "Torch.cat.0.forward");
}

// What differs before rows are added explains what follows.
TEST(AddedRows, ADifferenceBeforeThemComesFirst) {
  EXPECT_EQ(FirstBetween({.first = 3}, {}), "Torch.tanh.0.forward");
  EXPECT_EQ(FirstBetween({.more = true, .groups = 1, .first = 3}, {}), "Torch.tanh.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
