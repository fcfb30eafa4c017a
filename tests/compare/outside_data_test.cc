#include "engine/compare/measure/outside_data.h"

#include <gmock/gmock.h>

#include "tests/compare/by_rules.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::ByRules;
using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Tensor;
using ::testing::HasSubstr;

Tensor Indices(const char* bits) {
  return Numbers(99, 0, 51.4, 659).DType("torch.int64").Print(bits);
}
Tensor Floats(const char* bits) { return Numbers(2, -2, 0, 5).Print(bits); }

// Looks up a batch in a table; the rows of the result have the order of the batch.
Dump Lookup(const Tensor& batch, const char* made) {
  return DumpBuilder().Call("Functional.embedding.0.forward").In(batch).Out(Floats(made)).Take();
}

TEST(OutsideData, ABatchInAnotherOrderIsOtherData) {
  const Comparison c = ByRules(Lookup(Indices("a"), "m"), Lookup(Indices("b"), "n"));
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kDiffers);
  EXPECT_EQ(c.measures[0].reason, Reason::kOtherElements);
  EXPECT_EQ(c.first.call_class, CallClass::kInherited);
  EXPECT_THAT(c.first.why, HasSubstr("input.0 has the same statistics, and other elements"));
  EXPECT_THAT(c.first.advice, HasSubstr("compare the input data and their order"));
  EXPECT_EQ(c.run_start.data, "other data (Functional.embedding.0.forward.input.0 differs)");
}

// What comes behind the first result may follow from it through code that was not recorded.
TEST(OutsideData, LaterValuesMayComeFromUnrecordedCode) {
  const auto run = [](const char* bits, double high) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Floats("x")).Out(Floats("y"));
    b.Call("Functional.linear.1.forward").In(Numbers(high, -2, 0, 5).Print(bits)).Out(Floats("z"));
    return b.Take();
  };
  EXPECT_EQ(ByRules(run("a", 2), run("b", 3)).run_start.data,
            "other data, or a value of unrecorded code (Functional.linear.1.forward.input.0 "
            "differs)");
}

TEST(OutsideData, FloatsMayBeRounded) {
  const Comparison c = MustCompare(Lookup(Floats("a"), "m"), Lookup(Floats("b"), "n"));
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kNoise);
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.run_start.data, "the same data (1 tensor from outside, 1 rounded or reordered)");
}

// Rounding can change the order of nearly equal scores. topk returns `chosen`; index_select uses
// `part`, which was taken from it without a recorded call.
Dump Choice(const char* scores, const char* chosen, const char* part, bool recorded) {
  DumpBuilder b;
  b.Call("Torch.topk.0.forward").In(Floats(scores));
  b.Out(Floats(scores));
  if (recorded) b.Out(Indices(chosen));
  b.Call("Torch.index_select.0.forward").In(Floats("table")).In(Indices(part)).Out(Floats("rows"));
  return b.Take();
}

TEST(OutsideData, AChoiceThatRoundingTurnedIsNoOtherData) {
  const Comparison c = ByRules(Choice("s", "a", "a0", true), Choice("t", "b", "b0", true));
  EXPECT_EQ(c.measures.back().verdict, RowVerdict::kEqual);
  for (const Measure& m : c.measures) EXPECT_NE(m.reason, Reason::kOtherElements);
  const Comparison made = ByRules(Choice("s", "a", "a", true), Choice("t", "b", "b", true));
  for (const Measure& m : made.measures) EXPECT_NE(m.reason, Reason::kOtherElements);
  const Comparison outside = ByRules(Choice("s", "", "a", false), Choice("t", "", "b", false));
  EXPECT_EQ(outside.first.call_class, CallClass::kInherited);
}

}  // namespace
}  // namespace msprobe::compare
