// The verdict of two runs whose values agree and whose calls are not the same.
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/report/report_terminal.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using ::testing::HasSubstr;

RunVerdict VerdictOf(const Comparison& c) { return Summarize(c).verdict; }

// linear and relu; the linear in one call, or in a matmul and an addition.
DumpBuilder Net(bool split, double error = 0) {
  DumpBuilder b;
  if (split) {
    b.Call("Torch.matmul.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(7, -6, 0.2, 11));
    b.Call("Torch.add.0.forward").In(Numbers(7, -6, 0.2, 11)).Out(Numbers(2, -2, 0, 5));
  } else {
    b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
  }
  b.Call("Functional.relu.0.forward")
      .In(Numbers(2, -2, 0, 5))
      .Out(Scaled(Numbers(2, 0, 1, 4), error));
  return b;
}

TEST(StructureTest, OneCallSplitInTwoIsAnotherStructure) {
  for (const bool target : {true, false}) {
    const Comparison c = MustCompare(Net(target).Take(), Net(!target).Take());
    EXPECT_EQ(VerdictOf(c), RunVerdict::kStructure);
    const std::string text = TerminalReport(c, {.width = 100, .whole = true});
    EXPECT_THAT(text, HasSubstr("VALUES AGREE, STRUCTURE DIFFERS"));
    EXPECT_THAT(text, HasSubstr("All 2 values with a partner agree"));
    EXPECT_THAT(text, HasSubstr("2 calls are only in the"));
    EXPECT_THAT(JsonReport(c), HasSubstr("\"verdict\": \"structure\""));
  }
}

TEST(StructureTest, AWrongValueBehindItDiffers) {
  EXPECT_EQ(VerdictOf(MustCompare(Net(true, 0.1).Take(), Net(false).Take())), RunVerdict::kDiffers);
}

TEST(StructureTest, AWrapperModuleIsAnotherStructure) {
  DumpBuilder target = Net(false);
  target.Call("Module.wrapper.Wrapper.forward.0").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, 0, 1, 4));
  EXPECT_EQ(VerdictOf(MustCompare(target.Take(), Net(false).Take())), RunVerdict::kStructure);
}

TEST(StructureTest, AnUpdateInPlaceWithoutAResultDiffers) {
  DumpBuilder target = Net(false);
  target.Call("Torch._foreach_mul_.0.forward").In(Numbers(1, -1, 0, 3));
  EXPECT_EQ(VerdictOf(MustCompare(target.Take(), Net(false).Take())), RunVerdict::kDiffers);
}

TEST(StructureTest, GradientsThatOnlyOneRunHasDiffer) {
  DumpBuilder golden = Net(false);
  golden.Call("Functional.relu.0.backward").In(Numbers(1, 1, 1, 2)).Out(Numbers(1, 0, 0.5, 1));
  EXPECT_EQ(VerdictOf(MustCompare(Net(false).Take(), golden.Take())), RunVerdict::kDiffers);
}

TEST(StructureTest, WhatCouldNotBeJudgedIsUnknown) {
  DumpBuilder target = Net(true), golden = Net(false);
  for (DumpBuilder* b : {&target, &golden})
    b->Call("Functional.gelu.0.forward").In(Numbers(2, 0, 1, 4)).Out(test::Tensor().NoStats());
  EXPECT_EQ(VerdictOf(MustCompare(target.Take(), golden.Take())), RunVerdict::kUnknown);
}

TEST(StructureTest, AKilledRunIsUnknown) {
  Dump target = DumpBuilder()
                    .Call("Functional.linear.0.forward")
                    .In(Numbers(1, -1, 0, 3))
                    .Out(Numbers(2, -2, 0, 5))
                    .Take();
  target.complete = false;
  EXPECT_EQ(VerdictOf(MustCompare(std::move(target), Net(false).Take())), RunVerdict::kUnknown);
}

TEST(StructureTest, AnArgumentThatOnlyOneSidePassesIsAnotherStructure) {
  DumpBuilder target = Net(false), golden = Net(false);
  target.Call("Functional.gelu.0.forward").In(Numbers(2, 0, 1, 4));
  target.Value("approximate", "str", "none").Out(Numbers(2, 0, 0.9, 3));
  golden.Call("Functional.gelu.0.forward").In(Numbers(2, 0, 1, 4)).Out(Numbers(2, 0, 0.9, 3));
  EXPECT_EQ(VerdictOf(MustCompare(target.Take(), golden.Take())), RunVerdict::kStructure);
}

// A compiled model is one call, and its eager partner has many.
Dump Compiled(bool eager, double error = 0) {
  DumpBuilder b;
  for (int i = 0; eager && i < 40; ++i) {
    b.Call("Functional.f" + std::to_string(i) + ".0.forward")
        .Parent("Module.net.Net.forward.0")
        .In(Numbers(i + 2, -1, 0.1, i + 3))
        .Out(Numbers(i + 3, -1, 0.1, i + 4));
  }
  b.Call("Module.net.Net.forward.0")
      .In(Numbers(2, -1, 0.1, 3))
      .Out(Scaled(Numbers(42, -1, 0.1, 43), error));
  return b.Take();
}

TEST(StructureTest, AgreementOfNearlyNothingIsUnknown) {
  const Comparison c = MustCompare(Compiled(false), Compiled(true));
  EXPECT_EQ(VerdictOf(c), RunVerdict::kUnknown);
  const std::string text = TerminalReport(c, {.width = 100, .whole = true});
  EXPECT_THAT(text, HasSubstr("UNKNOWN, 2 of 82 values compared\n"));
  EXPECT_THAT(text, HasSubstr("these are only 2 of the 2 values of the"));
  EXPECT_THAT(JsonReport(c), HasSubstr("\"values\": 2,\n    \"target\": 2,\n    \"golden\": 82\n"));
  const Comparison wrong = MustCompare(Compiled(false, 0.1), Compiled(true));
  EXPECT_EQ(VerdictOf(wrong), RunVerdict::kDiffers);
  EXPECT_THAT(TerminalReport(wrong, {.width = 60}), HasSubstr("2 of 82 values compared\n"));
}

}  // namespace
}  // namespace msprobe::compare
