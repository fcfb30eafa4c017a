#include "engine/compare/measure/uncounted_values.h"

#include <gtest/gtest.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {
namespace {

const Tensor kOld = Numbers(9, 0, 1, 9), kOther = Numbers(7e8, -2, 1, 7e8);
const Tensor kNew = Numbers(1, -1, 0, 5);

// One call whose destination buffer has different old content on the two sides.
template <typename Arguments>
Comparison CallWith(const char* name, Arguments&& arguments, const Tensor& target_result = kNew) {
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
    const Comparison c = CallWith(name, first);
    EXPECT_EQ(c.measures[0].reason, Reason::kOverwritten) << name;
    EXPECT_EQ(c.classes[0], CallClass::kEqual) << name;
    EXPECT_EQ(c.first.pair, -1) << name;
  }
  const Comparison out =
      CallWith("Torch.mm.0.forward", [](DumpBuilder& b, const Tensor& old) -> DumpBuilder& {
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

TEST(Changed, ACallThatLeavesItsArgumentWrongIntroducesTheError) {
  for (const char* name : {"Tensor.__setitem__.0.forward", "Functional.batch_norm.0.forward"}) {
    DumpBuilder t, g;
    t.Call(name).In(kOld).In(kNew).Out(kNew).Changed("input.0", Scaled(kOld, 1));
    g.Call(name).In(kOld).In(kNew).Out(kNew).Changed("input.0", kOld);
    const Comparison c = MustCompare(t.Take(), g.Take());
    ASSERT_EQ(c.first.pair, 0) << name;
    EXPECT_EQ(c.first.call_class, CallClass::kIntroduced) << name;
    EXPECT_NE(c.first.why.English().find("changed.input.0"), std::string::npos)
        << c.first.why.English();
  }
}

TEST(Changed, TheRoundingOfWhatIsAveragedIsNoError) {
  // The mean of large numbers may be zero in theory.
  const auto run = [](double error, const Tensor& mean) {
    DumpBuilder b;
    b.Call("Functional.batch_norm.0.forward").In(Scaled(Numbers(1000, -1000, 0, 5000), error));
    return b.Out(kNew).Changed("input.1", mean).Take();
  };
  const Tensor mean = Numbers(1e-4, -1e-4, 0, 3e-4);
  EXPECT_EQ(MustCompare(run(1e-7, Numbers(2e-4, -1e-4, 0, 5e-4)), run(0, mean)).first.pair, -1);
  EXPECT_EQ(MustCompare(run(1e-7, Numbers(2, -1e-4, 0, 5)), run(0, mean)).first.pair, 0);
}

TEST(Changed, DumpsWithoutSuchValuesAreComparedAsBefore) {
  DumpBuilder t, g;
  t.Call("Functional.batch_norm.0.forward").In(kOld).Out(kNew).Changed("input.1", kOld);
  g.Call("Functional.batch_norm.0.forward").In(kOld).Out(kNew);
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(c.classes[0], CallClass::kEqual);
  EXPECT_EQ(c.measures[2].reason, Reason::kOneRecorded);
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
  return MustCompare(t.Take(), g.Take());
}

TEST(OtherForms, AMaskInAnotherFormWhoseResultsAgree) {
  const Tensor mask = Numbers(0, -1e9, -5e8, 3e9);
  const Comparison c = WithMask(mask, 1e-7);
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(c.measures[1].reason, Reason::kOtherForm);
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  EXPECT_EQ(WithMask(mask, 0.1).first.pair, 0);
}

}  // namespace
}  // namespace msprobe::compare::test
