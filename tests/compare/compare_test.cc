#include "engine/compare/compare.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using ::testing::HasSubstr;

Dump ThreeCalls(double error = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0.5, 5));
  b.Call("Functional.gelu.0.forward")
      .In(Numbers(2, -2, 0.5, 5))
      .Out(test::Scaled(Numbers(2, 0, 0.6, 4), error));
  b.Call("Functional.linear.1.forward")
      .In(test::Scaled(Numbers(2, 0, 0.6, 4), error))
      .Out(Numbers(1 + error, 0, 0, 2));
  return b.Take();
}

TEST(CompareTest, EqualRunsAreEqual) {
  const Comparison c = MustCompare(ThreeCalls(), ThreeCalls());
  const Summary s = Summarize(c);
  EXPECT_EQ(s.verdict, RunVerdict::kEqual);
  EXPECT_EQ(s.rows[0], 6);
  EXPECT_EQ(c.first.pair, -1);
}

TEST(CompareTest, TheErrorBeginsWhereInputsAgree) {
  const Comparison c = MustCompare(ThreeCalls(0.1), ThreeCalls());
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kDiffers);
  ASSERT_EQ(c.classes.size(), 3u);
  EXPECT_EQ(c.classes[0], CallClass::kEqual);
  EXPECT_EQ(c.classes[1], CallClass::kIntroduced);
  EXPECT_EQ(c.classes[2], CallClass::kInherited);
  EXPECT_EQ(c.first.pair, 1);
}

TEST(CompareTest, EmptyDumpsAreUnknownNotEqual) {
  EXPECT_EQ(Summarize(MustCompare(Dump(), Dump())).verdict, RunVerdict::kUnknown);
}

TEST(CompareTest, StructureDumpIsRefusedWithAHint) {
  Dump d = ThreeCalls();
  d.task = Task::kStructure;
  const auto result = Compare(std::move(d), ThreeCalls());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.status().message(), HasSubstr("structure"));
  EXPECT_FALSE(result.status().hint().empty());
}

TEST(CompareTest, ModeWithoutDataIsRefused) {
  EXPECT_FALSE(Compare(ThreeCalls(), ThreeCalls(), {.mode = Mode::kChecksum}).ok());
  EXPECT_FALSE(Compare(ThreeCalls(), ThreeCalls(), {.mode = Mode::kTensor}).ok());
}

TEST(CompareTest, MappingThatNamesNothingIsRefused) {
  CompareOptions options;
  options.mapping.apis = {{"Cell.no.Such", "Module.no.Such"}};
  const auto result = Compare(ThreeCalls(), ThreeCalls(), options);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), HasSubstr("Cell.no.Such"));
}

// The older tools list gradients of inputs in the order of the graph.
TEST(CompareTest, GradientsInAnotherOrderSayNothing) {
  const auto backward = [](Dialect dialect, bool swapped) {
    const test::Tensor first = Numbers(1, -1, 0, 3).Shape("[2, 4]");
    const test::Tensor second = Numbers(5, -4, 0.5, 9).Shape("[3, 4]");
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0.5, 5));
    b.Call("Functional.linear.0.backward")
        .In(Numbers(2, -2, 0.5, 5))
        .Out(swapped ? second : first)
        .Out(swapped ? first : second);
    b.dump().dialect = dialect;
    return b.Take();
  };
  const auto verdict = [&](Dialect target, Dialect golden) {
    return Summarize(MustCompare(backward(target, false), backward(golden, true))).verdict;
  };
  EXPECT_EQ(verdict(Dialect::kMsprobe27, Dialect::kMsprobe26), RunVerdict::kEqual);
  EXPECT_EQ(verdict(Dialect::kMsprobe8, Dialect::kMsprobe27), RunVerdict::kEqual);
  EXPECT_EQ(verdict(Dialect::kMsprobe27, Dialect::kMsprobe27), RunVerdict::kDiffers);
  EXPECT_EQ(verdict(Dialect::kMsprobe8, Dialect::kMsprobe26), RunVerdict::kDiffers);
}

TEST(CompareTest, ARowWithoutNumbersSaysWhichSideHasNone) {
  const auto dump = [](std::string_view reason) {
    DumpBuilder b;
    b.Call("Functional.relu.0.forward").In(Numbers(1, -1, 0, 3).NoStats()).Out(Numbers(2, 0, 1, 3));
    if (!reason.empty()) b.dump().unreadable.push_back({0, reason});
    return b.Take();
  };
  const auto note = [&](std::string_view target, std::string_view golden) {
    const Comparison c = MustCompare(dump(target), dump(golden));
    const bool neutral = !target.empty() && target == golden;
    EXPECT_EQ(c.measures[0].reason, neutral ? Reason::kNothingRecorded : Reason::kNoCommonNumber);
    return c.notes.empty() ? std::string() : c.notes[0].English();
  };
  EXPECT_EQ(note("meta tensor", "meta tensor"), "meta tensor");
  EXPECT_EQ(note("meta tensor", ""), "target: meta tensor");
  EXPECT_EQ(note("no data", "meta tensor"), "target: no data, golden: meta tensor");
  EXPECT_EQ(note("", ""), "");
}

}  // namespace
}  // namespace msprobe::compare
