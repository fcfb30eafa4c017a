#include "engine/compare/table/fail_on.h"

#include <gmock/gmock.h>

#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using ::testing::HasSubstr;
using namespace test;  // NOLINT

// Three values: equal, off by half, only in the target.
Comparison ComparedRuns() {
  DumpBuilder t, g;
  t.Call("Torch.a.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(3, -1, 0, 4));
  g.Call("Torch.a.0.forward").In(Numbers(1, 0, 0, 1)).Out(Numbers(2, -1, 0, 2));
  t.Call("Torch.b.0.forward").Out(Numbers(1, 0, 0, 1));
  return MustCompare(t.Take(), g.Take());
}

int64_t RowsMeeting(const std::string& condition) {
  const Result<FailOn> limits = ParseFailOn(condition);
  EXPECT_TRUE(limits.ok()) << limits.status().ToString();
  const Comparison c = ComparedRuns();
  const auto hits = CheckRows(*limits, TableFormat(c));
  EXPECT_TRUE(hits.ok()) << hits.status().ToString();
  return hits->empty() ? 0 : hits->front().rows;
}

TEST(FailOn, Words) {
  EXPECT_EQ(RowsMeeting("error"), 1);
  EXPECT_EQ(RowsMeeting("warning"), 1);
  EXPECT_EQ(RowsMeeting("unmatched"), 1);
  EXPECT_EQ(RowsMeeting("unknown"), 1);
  EXPECT_EQ(RowsMeeting("differs"), 1);
  EXPECT_EQ(RowsMeeting("noise"), 1);
}

TEST(FailOn, LimitsOnColumns) {
  EXPECT_EQ(RowsMeeting("NormRelativeErr>0.99"), 1);
  EXPECT_EQ(RowsMeeting("normrelativeerr >= 100%"), 1);
  EXPECT_EQ(RowsMeeting("NormRelativeErr>1"), 0);
  EXPECT_EQ(RowsMeeting("max_diff<=0"), 1);  // of the matched rows; N/A meets no limit
  EXPECT_EQ(RowsMeeting("NPU max<2"), 2);
}

TEST(FailOn, AHitNamesTheFirstRow) {
  const Comparison c = ComparedRuns();
  const auto hits = CheckRows(*ParseFailOn("unmatched,MaxRelativeErr>1%"), TableFormat(c));
  ASSERT_TRUE(hits.ok());
  ASSERT_EQ(hits->size(), 2u);
  EXPECT_EQ(DescribeHit((*hits)[1]),
            "MaxRelativeErr>1%: 1 value, the first is Torch.a.0.forward.output.0 (50.0%)");
}

TEST(FailOn, InvalidConditionsAreRefused) {
  for (const char* text : {"", "eror", "Cosine", "Cosine>", ">1", "Cosine>x", "error,", "A>nan"}) {
    const Result<FailOn> limits = ParseFailOn(text);
    EXPECT_FALSE(limits.ok()) << text;
    EXPECT_THAT(limits.status().message(), HasSubstr("MaxRelativeErr>0.01"));
  }
  EXPECT_THAT(ParseFailOn("eror").status().hint(), HasSubstr("did you mean error"));
  const Comparison c = ComparedRuns();
  const auto hits = CheckRows(*ParseFailOn("MaxRelativError>1"), TableFormat(c));
  ASSERT_FALSE(hits.ok());
  EXPECT_THAT(hits.status().message(), HasSubstr("by statistics has no column"));
  EXPECT_THAT(hits.status().hint(), HasSubstr("MaxRelativeErr"));
}

TEST(FailOn, NaNMeetsEveryLimit) {
  DumpBuilder t, g;
  t.Call("Torch.a.0.forward").Out(Numbers(kNaN, kNaN, kNaN, kNaN));
  g.Call("Torch.a.0.forward").Out(Numbers(1, 0, 0, 1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(CheckRows(*ParseFailOn("Max diff>1e30"), TableFormat(c))->size(), 1u);
}

}  // namespace
}  // namespace msprobe::compare
