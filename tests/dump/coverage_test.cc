#include "engine/dump/write/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/messages/message.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;

Coverage Example() {
  Coverage c;
  c.apis = {.recorded = 5, .nested = 2, .ignored = 1, .traced = 3, .wrappers = 6};
  c.modules = {.recorded = 4};
  c.gradients = 3;
  c.gradients_ignored = 2;
  c.gradients_missing = 1;
  c.counted = true;
  c.recorded = 5, c.nested = 9, c.gradient = 7, c.ignored = 2, c.compiled_regions = 1;
  c.saves = 6, c.saves_refused = 1;
  c.not_observed = {{"aten::view", 12, "not \"listed\""_t}, {"my::op", 1, "other library"_t}};
  c.apis_not_observed = {{"Torch.foo", "calling convention 128 is not known"_t}};
  return c;
}

TEST(Coverage, ModulesThatWereNotSeenAreRead) {
  TemporaryFolder folder;
  Coverage c = Example();
  c.modules_not_observed = {{"Cell.fc.Dense", "not called"_t}, {"Cell.act.ReLU", "no \"tap\""_t}};
  const std::string text = CoverageJson(c);
  const Result<Coverage> read = ReadCoverage(folder.Write("coverage.json", text));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(CoverageJson(*read), text);
  EXPECT_EQ(read->modules_not_observed[1].reason, "no \"tap\"");
}

TEST(Coverage, IsReadAsItWasWritten) {
  TemporaryFolder folder;
  const std::string text = CoverageJson(Example());
  const Result<Coverage> read = ReadCoverage(folder.Write("coverage.json", text));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(CoverageJson(*read), text);
  EXPECT_EQ(read->not_observed_count(), 13);
  EXPECT_EQ(read->apis_not_observed[0].reason, "calling convention 128 is not known");
}

TEST(Coverage, WithoutOperationsSaysWhy) {
  TemporaryFolder folder;
  Coverage c = Example();
  c.counted = false;
  c.why_not_counted = "only the first recorded step is"_t;
  c.not_observed.clear();
  const Result<Coverage> read = ReadCoverage(folder.Write("coverage.json", CoverageJson(c)));
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->counted);
  EXPECT_EQ(CoverageLines(*read, 5).back(),
            "operations: not counted, only the first recorded step is");
}

TEST(Coverage, LinesForAPerson) {
  EXPECT_THAT(
      CoverageLines(Example(), 1),
      ElementsAre("API calls: 5 recorded, 2 inside those, 1 left out by the configuration, 3 "
                  "traced by a compiler, 6 by wrappers of compiled code",
                  "module calls: 4 recorded", "saved values: 6 recorded, 1 refused",
                  "gradients of saved values: 3 recorded, 2 left out by the configuration, "
                  "1 never came",
                  "operations: 5 recorded, 9 more inside recorded calls, 7 of the backward pass, 2 "
                  "left out by the configuration, 13 not observed",
                  "  12 aten::view: not \"listed\"", "  and others, see coverage.json",
                  "compiled code was entered 1 time: values inside its kernels are not recorded"));
}

TEST(Coverage, OneSentenceForTheEndOfARecording) {
  EXPECT_EQ(
      CoverageSentence(Example()),
      "5 API calls, 4 module calls, 6 saved values, 3 gradients; 13 operations were not "
      "observed, coverage.json lists them; values inside the kernels of compiled code are not "
      "recorded");
  EXPECT_EQ(CoverageSentence({}), "no call");
}

TEST(Coverage, ADamagedFileIsAnError) {
  TemporaryFolder folder;
  const Result<Coverage> read = ReadCoverage(folder.Write("coverage.json", "{\"apis\": "));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().code(), ErrorCode::kInvalidConfig);
}

}  // namespace
}  // namespace msprobe::dump
