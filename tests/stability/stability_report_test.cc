#include "engine/stability/stability_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/messages/message.h"
#include "engine/stability/calibration.h"
#include "engine/stability/limits.h"
#include "tests/base/english.h"

namespace msprobe::stability {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path);
  return file.ok() ? std::string(file->bytes()) : "";
}

StabilityRow Row(std::string_view call, Verdict verdict, std::vector<int64_t> shape,
                 int64_t index = -1) {
  return {.rank = 3,
          .perturbation = "add_noise",
          .step = 7,
          .call = call,
          .verdict = std::move(verdict),
          .dtype = "torch.float16",
          .shape = std::move(shape),
          .output_index = index};
}

TEST(StabilityReport, RowsOfTheOlderTools) {
  const std::string folder = testing::TempDir() + "stability_report";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  StabilityReport report;
  ASSERT_TRUE(report.Open(folder).ok());
  ASSERT_TRUE(
      report.Add(Row("Functional.softmax.12.forward", {false, "0.0153", 0.0153}, {8, 128}), "")
          .ok());
  ASSERT_TRUE(report.Open(folder).ok()) << "a later start goes on";
  ASSERT_TRUE(report.Add(Row("Torch.max.0.forward", {false, "nan", 1e300}, {}, 1), "a.py:3").ok());
  EXPECT_EQ(
      Text(folder + "/free_benchmark.csv"),
      "rank,pert_mode,stage,step,api_name,max_rel,dtype,shape,output_index\n"
      "3,add_noise,forward,7,Functional.softmax.12.forward,0.0153,torch.float16,\"torch.Size([8, "
      "128])\",\n"
      "3,add_noise,forward,7,Torch.max.0.forward,nan,torch.float16,torch.Size([]),1\n");
  report.Judged();
  report.Inconsistent();
  EXPECT_THAT(
      report.Lines({}, 1),
      ElementsAre("free_benchmark, improve_precision, forward: 1 calls judged, 1 inconsistent",
                  "the worst inconsistent call: Torch.max.0.forward of step 7, max_rel nan: "
                  "a.py:3"));
}

TEST(StabilityReport, SaysWhatWasNotJudged) {
  StabilityReport report;
  EXPECT_THAT(report.Lines({}, 1), IsEmpty());
  report.Judged();
  report.NotSampled();
  report.Skipped("communicate"_t);
  report.Skipped("draw random numbers"_t);
  report.Skipped("draw random numbers"_t);
  const std::vector<std::string> lines = EnglishOf(report.Lines({.budget = 0.5}, 8));
  EXPECT_THAT(lines,
              ElementsAre(HasSubstr(
                  "1 calls judged, 0 inconsistent; 1 calls not sampled, to keep \"budget\" 0.5 "
                  "(at last 1 call in 8); skipped: 2 draw random numbers, 1 communicate")));
}

TEST(Calibration, LimitsGoUpAndDown) {
  Calibration limits;
  EXPECT_EQ(limits.Of("a"), std::nullopt);
  limits.Note("a", /*consistent=*/false, /*agrees_with_cpu=*/true, 1.004);
  EXPECT_DOUBLE_EQ(*limits.Of("a"), 1 + 1.05 * 2);
  limits.Note("a", true, false, 1.004);
  limits.Note("a", true, false, 1.004);
  EXPECT_DOUBLE_EQ(*limits.Of("a"), 1 + 1.05 / 2);
  for (int i = 0; i < 20; ++i) limits.Note("a", true, false, 1.004);
  EXPECT_DOUBLE_EQ(*limits.Of("a"), 1.004);
  limits.Note("b", true, true, 1.004);
  EXPECT_DOUBLE_EQ(*limits.Of("b"), kFirstLimit);
}

}  // namespace
}  // namespace msprobe::stability
