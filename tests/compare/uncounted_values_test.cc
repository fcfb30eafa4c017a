#include "engine/compare/measure/uncounted_values.h"

#include <gtest/gtest.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/by_rules.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {
namespace {

const Tensor kOld = Numbers(9, 0, 1, 9), kOther = Numbers(7e8, -2, 1, 7e8);
const Tensor kNew = Numbers(1, -1, 0, 5);

// One call whose destination buffer has different old content on the two sides.
template <typename Arguments>
Comparison CallOf(const char* name, Arguments&& arguments, const Tensor& target_result = kNew) {
  DumpBuilder t, g;
  arguments(t.Call(name), kOld).Out(target_result);
  arguments(g.Call(name), kOther).Out(kNew);
  return MustCompare(t.Take(), g.Take());
}

TEST(Overwritten, TheOldContentDoesNotCountWhereTheResultAgrees) {
  const auto first = [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& {
    return b.In(old).In(kNew);
  };
  for (const char* name : {"Tensor.scatter_.0.forward", "Tensor.bernoulli_.0.forward"}) {
    const Comparison c = CallOf(name, first);
    EXPECT_EQ(c.measures[0].reason, Reason::kOverwritten) << name;
    EXPECT_EQ(c.classes[0], CallClass::kEqual) << name;
    EXPECT_EQ(c.first.pair, -1) << name;
  }
  const Comparison out =
      CallOf("Torch.mm.0.forward", [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& {
        return b.In(kNew).Kwarg("out", old);
      });
  EXPECT_EQ(out.measures[1].reason, Reason::kOverwritten);
  EXPECT_EQ(out.first.pair, -1);
}

TEST(Overwritten, AssignmentToAnIndexReturnsNothing) {
  DumpBuilder t, g;
  t.Call("Tensor.__setitem__.0.forward").In(kOld).In(kNew).Null(Slot::kOutput);
  g.Call("Tensor.__setitem__.0.forward").In(kOther).In(kNew).Null(Slot::kOutput);
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(c.measures[0].reason, Reason::kOverwritten);
  EXPECT_EQ(c.first.pair, -1);
}

TEST(Overwritten, TheRestOfAnAssignmentDoesNotCountEither) {
  DumpBuilder t, g;
  t.Call("Tensor.__setitem__.0.forward").In(kOld).In(kNew).Changed("input.0", Scaled(kOld, 1));
  g.Call("Tensor.__setitem__.0.forward").In(kOther).In(kNew).Changed("input.0", kOld);
  const Comparison c = ByRules(t.Take(), g.Take());
  EXPECT_EQ(c.measures[2].reason, Reason::kOverwritten);
  EXPECT_EQ(c.first.pair, -1);
}

TEST(Changed, ACallThatLeavesItsArgumentWrongIntroducesTheError) {
  for (const char* name : {"Tensor.__setitem__.0.forward", "Functional.batch_norm.0.forward"}) {
    DumpBuilder t, g;
    t.Call(name).In(kOld).In(kNew).Out(kNew).Changed("input.0", Scaled(kOld, 1));
    g.Call(name).In(kOld).In(kNew).Out(kNew).Changed("input.0", kOld);
    const Comparison c = MustCompare(t.Take(), g.Take());
    ASSERT_EQ(c.first.pair, 0) << name;
    EXPECT_EQ(c.first.call_class, CallClass::kIntroduced) << name;
    EXPECT_NE(c.first.why.find("changed.input.0"), std::string::npos) << c.first.why;
  }
}

TEST(Changed, TheRoundingOfWhatIsAveragedIsNoError) {
  // The mean of large numbers may be zero in theory.
  DumpBuilder t, g;
  const Tensor large = Numbers(1000, -1000, 0, 5000);
  t.Call("Functional.batch_norm.0.forward").In(Scaled(large, 1e-7)).Out(kNew);
  t.Changed("input.1", Numbers(2e-4, -1e-4, 0, 5e-4));
  g.Call("Functional.batch_norm.0.forward").In(large).Out(kNew);
  g.Changed("input.1", Numbers(1e-4, -1e-4, 0, 3e-4));
  EXPECT_EQ(ByRules(t.Take(), g.Take()).first.pair, -1);
}

TEST(Changed, DumpsWithoutSuchValuesAreComparedAsBefore) {
  DumpBuilder t, g;
  t.Call("Functional.batch_norm.0.forward").In(kOld).Out(kNew).Changed("input.1", kOld);
  g.Call("Functional.batch_norm.0.forward").In(kOld).Out(kNew);
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(c.classes[0], CallClass::kEqual);
  EXPECT_EQ(c.measures[2].reason, Reason::kOneRecorded);
}

TEST(Overwritten, ItCountsWhereTheResultDiffersAndWhereNothingIsOverwritten) {
  const auto first = [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& {
    return b.In(old).In(kNew);
  };
  EXPECT_EQ(CallOf("Tensor.mul_.0.forward", first, Scaled(kNew, 1)).measures[0].verdict,
            RowVerdict::kDiffers);
  EXPECT_EQ(CallOf("Torch.add.0.forward", first).measures[0].reason, Reason::kWithoutEffect);
  // Differences within rounding stay noise. A call that returns nothing has no result to judge by.
  EXPECT_EQ(CallOf("Tensor.relu_.0.forward",
                   [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& {
                     return b.In(old.max == kOld.max ? kNew : Scaled(kNew, 1e-7));
                   })
                .measures[0]
                .verdict,
            RowVerdict::kNoise);
  DumpBuilder t, g;
  t.Call("Torch._foreach_add_.0.forward").In(kOld).In(kNew).Null(Slot::kOutput);
  g.Call("Torch._foreach_add_.0.forward").In(kOther).In(kNew).Null(Slot::kOutput);
  EXPECT_EQ(ByRules(t.Take(), g.Take()).measures[0].verdict, RowVerdict::kDiffers);
  // The second argument of an in-place call is an input.
  const Comparison c =
      CallOf("Tensor.copy_.0.forward",
             [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& { return b.In(kNew).In(old); });
  EXPECT_EQ(c.measures[1].reason, Reason::kWithoutEffect);
}

// A module that takes a mask, and returns its attention weights or None.
Comparison WithMask(const Tensor& mask, double error, bool weights = false) {
  DumpBuilder t, g;
  const auto begin = [](DumpBuilder& b, const Tensor& m) {
    b.Call("Module.attn.Attention.forward.0").In(kNew).Kwarg("mask", m);
  };
  begin(t, mask);
  begin(g, Numbers(1, 0, 0.5, 3).DType("torch.bool"));
  t.Value("is_causal", "bool", "True").OutAt("0", Scaled(kNew, error));
  g.Value("is_causal", "bool", "False").OutAt("0", kNew);
  weights ? t.OutAt("1", kOld) : t.Null(Slot::kOutput);
  g.Null(Slot::kOutput);
  return ByRules(t.Take(), g.Take());
}

TEST(OtherForms, AMaskInAnotherFormWhoseResultsAgree) {
  const Tensor mask = Numbers(0, -1e9, -5e8, 3e9);
  const Comparison c = WithMask(mask, 1e-7);
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.measures[1].reason, Reason::kOtherForm);
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  EXPECT_EQ(WithMask(mask, 0.1).first.pair, 0);
}

TEST(OtherForms, AFlagAloneIsADifference) {
  const Tensor mask = Numbers(1, 0, 0.5, 3).DType("torch.bool");
  EXPECT_EQ(WithMask(mask, 1e-7).first.pair, 0);
}

// A call with one plain argument.
Dump WithArgument(const char* name, const char* value, const char* result, double error = 0) {
  DumpBuilder b;
  b.Call(name).In(Numbers(1, -1, 0, 5).Shape("[2, 3, 4]")).Value("size", "int", value);
  b.Out(Scaled(Numbers(1, -1, 0, 5), error).Shape(result));
  return b.Take();
}

TEST(EqualArguments, ASizeThatFollowsFromTheOthers) {
  const auto compared = [](const char* name, const char* target, const char* result) {
    return ByRules(WithArgument(name, target, result), WithArgument(name, "4", "[6, 4]"));
  };
  const Comparison c = compared("Tensor.reshape.0.forward", "-1", "[6, 4]");
  EXPECT_EQ(c.measures[1].reason, Reason::kOtherForm);
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_NE(compared("Tensor.reshape.0.forward", "3", "[8, 3]").first.pair, -1);
  // The result of a permutation may have this shape with elements at other places.
  const Comparison permuted = compared("Tensor.permute.0.forward", "-2", "[6, 4]");
  EXPECT_EQ(permuted.measures[1].reason, Reason::kValueDiffers);
}

TEST(EqualArguments, ADimensionCountedFromTheOtherEnd) {
  const auto compared = [](const char* name, const char* target, double error) {
    return ByRules(WithArgument(name, target, "[2, 3, 4]", error),
                   WithArgument(name, "2", "[2, 3, 4]"));
  };
  const Comparison c = compared("Tensor.softmax.0.forward", "-1", 1e-7);
  EXPECT_EQ(c.measures[1].reason, Reason::kOtherForm);
  EXPECT_EQ(c.first.pair, -1);
  const Comparison other = compared("Tensor.softmax.0.forward", "-2", 0);
  EXPECT_EQ(other.measures[1].reason, Reason::kValueDiffers);
  // x + -1 beside x + 2.
  const Comparison sum = compared("Tensor.__add__.0.forward", "-1", 0.5);
  EXPECT_NE(sum.first.why.find("size is \"-1\" in the target"), std::string::npos) << sum.first.why;
}

}  // namespace
}  // namespace msprobe::compare::test
