#include "engine/compare/measure/outside_data.h"

#include <gmock/gmock.h>

#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Tensor;
using ::testing::HasSubstr;

Tensor IndexTensor(const char* bits) {
  return Numbers(99, 0, 51.4, 659).DType("torch.int64").Print(bits);
}
Tensor Floats(const char* bits) { return Numbers(2, -2, 0, 5).Print(bits); }

// Looks up a batch in a table; the rows of the result have the order of the batch.
Dump Lookup(const Tensor& batch, const char* made) {
  return DumpBuilder().Call("Functional.embedding.0.forward").In(batch).Out(Floats(made)).Take();
}

TEST(OutsideData, ABatchInAnotherOrderIsSaid) {
  const Comparison c = MustCompare(Lookup(IndexTensor("a"), "m"), Lookup(IndexTensor("b"), "n"));
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.run_start.data, "the same data (1 tensor from outside, 1 rounded or reordered)");
}

// What comes behind the first result may follow from it through code that was not recorded.
TEST(OutsideData, LaterValuesMayComeFromUnrecordedCode) {
  const auto run = [](const char* bits, double high) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Floats("x")).Out(Floats("y"));
    const Tensor other = Numbers(high, -2, 0, 5).Print(bits);
    b.Call("Functional.linear.1.forward").In(other).Out(Numbers(high, -3, 0, 6));
    return b.Take();
  };
  EXPECT_EQ(MustCompare(run("a", 4), run("b", 3)).run_start.data,
            "other data, or a value of unrecorded code (Functional.linear.1.forward.input.0 "
            "differs)");
}

TEST(OutsideData, FloatsMayBeRounded) {
  const Comparison c = MustCompare(Lookup(Floats("a"), "m"), Lookup(Floats("b"), "n"));
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kNoise);
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.run_start.data, "the same data (1 tensor from outside, 1 rounded or reordered)");
}

}  // namespace
}  // namespace msprobe::compare
