#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/file.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/table/table_format.h"
#include "engine/compare/table/table_report.h"
#include "engine/results/comparison_builder.h"
#include "engine/results/finding_json.h"
#include "engine/results/result_folder.h"
#include "engine/results/result_table.h"
#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::results {
namespace {

using compare::CallClass;
using compare::Comparison;
using compare::test::DumpBuilder;
using compare::test::MustCompare;
using compare::test::Numbers;
using compare::test::Scaled;
using testing::ElementsAre;
using testing::HasSubstr;

// linear, a gelu that is wrong by `by`, a relu that passes it on, a call of the target alone.
Dump SmallRun(double by, bool extra) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward")
      .In(Numbers(1, -1, 0.1, 5))
      .Out(Numbers(2, -2, 0.2, 7))
      .At("train.py", 10, "x = f('a', \"b\")");
  b.Call("Functional.gelu.0.forward")
      .In(Numbers(2, -2, 0.2, 7))
      .Out(Scaled(Numbers(3, -1, 0.4, 6), by))
      .At("train.py", 11, "x = F.gelu(x)");
  if (extra) b.Call("Torch.clone.0.forward").In(Numbers(8, 0, 1, 9)).Out(Numbers(8, 0, 1, 9));
  b.Call("Module.act.ReLU.forward.0")
      .In(Scaled(Numbers(3, -1, 0.4, 6), by))
      .Out(Scaled(Numbers(4, 0, 0.5, 8), by))
      .At("train.py", 12, "return self.act(x)");
  return b.Take();
}

std::string Written(const std::string& folder, const Comparison& c,
                    const compare::TableOptions& options = {}) {
  const std::string path = JoinPath(folder, "compare_result_20260102030405.csv");
  EXPECT_TRUE(compare::WriteTableCsv(compare::TableFormat(c, options), path).ok());
  return path;
}

TEST(ValueNames, OfAllGenerations) {
  const auto split = [](std::string_view name) {
    const ValueName v = SplitValueName(name);
    return std::string(v.call) + " | " + std::string(v.path);
  };
  EXPECT_EQ(split("Functional.linear.0.forward.input.0"), "Functional.linear.0.forward | input.0");
  EXPECT_EQ(split("Module.layers.0.fc.Linear.forward.3.output.0.1"),
            "Module.layers.0.fc.Linear.forward.3 | output.0.1");
  EXPECT_EQ(split("Module.fc.Linear.parameters_grad.weight"),
            "Module.fc.Linear.parameters_grad | weight");
  EXPECT_EQ(split("Module.fc.Linear.parameters_grad.0.weight"),
            "Module.fc.Linear.parameters_grad.0 | weight");
  EXPECT_EQ(split("Functional_linear_0_forward_input.0"), "Functional_linear_0_forward | input.0");
  EXPECT_EQ(split("loss.0.debug"), "loss.0.debug | ");
  EXPECT_EQ(split("anything"), "anything | ");
}

TEST(ResultTable, SaysWhatTheComparisonSaid) {
  const Comparison c = MustCompare(SmallRun(0.1, true), SmallRun(0, false));
  const TemporaryFolder folder;
  const Result<Comparison> read = ReadResultTable(Written(folder.path(), c));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->pairs.size(), c.pairs.size());
  ASSERT_EQ(read->rows.size(), c.rows.size());
  EXPECT_EQ(read->classes, c.classes);
  for (size_t i = 0; i < c.rows.size(); ++i) {
    EXPECT_EQ(read->measures[i].verdict, c.measures[i].verdict);
    EXPECT_EQ(read->measures[i].reason, c.measures[i].reason);
  }
  EXPECT_EQ(read->first.pair, c.first.pair);
  EXPECT_EQ(read->first.source_line, c.first.source_line);
  EXPECT_EQ(read->first.why, c.first.why);
  const compare::RankResult result = compare::SummarizeRank(*read, -1, -1);
  EXPECT_EQ(result.summary.verdict, compare::Summarize(c).verdict);
  EXPECT_EQ(result.summary.calls, compare::Summarize(c).calls);
}

TEST(ResultTable, OfAnOlderToolIsJudgedByItsNumbers) {
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "result.csv");
  ASSERT_TRUE(WriteFileAtomically(
                  path,
                  "NPU Name,Bench Name,NPU Tensor Dtype,Bench Tensor Dtype,NPU Tensor Shape,"
                  "Bench Tensor Shape,NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,"
                  "Bench mean,Bench l2norm,Result\n"
                  "Functional_a_0_forward_input.0,Functional_a_0_forward_input.0,torch.float32,"
                  "torch.float32,[4],[4],1,-1,0.5,2,1,-1,0.5,2,\n"
                  "Functional_a_0_forward_output,Functional_a_0_forward_output,torch.float32,"
                  "torch.float32,[4],[4],1.5,-1,0.5,2,1,-1,0.5,2,Warning\n"
                  "Functional_b_0_forward_input.0,N/A,torch.float32,N/A,[4],N/A,1,1,1,1,N/A,N/A,"
                  "N/A,N/A,\n")
                  .ok());
  const Result<Comparison> read = ReadResultTable(path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_THAT(read->classes, ElementsAre(CallClass::kIntroduced, CallClass::kUnknown));
  EXPECT_EQ(read->first.pair, 0);
}

TEST(ResultTable, AnotherTableIsRefused) {
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "other.csv");
  ASSERT_TRUE(WriteFileAtomically(path, "a,b\n1,2\n").ok());
  const Result<Comparison> read = ReadResultTable(path);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), HasSubstr("NPU Name"));
  EXPECT_THAT(read.status().message(), HasSubstr("\"a\""));
}

TEST(ResultFolder, TheNewestTableOfEachPair) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name) {
    const std::string path = JoinPath(folder.path(), name);
    ASSERT_TRUE(MakeDirectories(DirectoryName(path)).ok());
    ASSERT_TRUE(WriteFileAtomically(path, "x\n").ok());
  };
  write("compare_result_rank0_20260102030405.csv");
  write("compare_result_rank0_20260102030406.csv");
  write("compare_result_rank1-rank1_20260102030406.xlsx");
  write("step3/compare_result_rank0_20260102030406.csv");
  write("compare_summary_20260102030406.csv");
  write("notes.csv");
  const Result<ResultFolder> found = FindResultTables(folder.path());
  ASSERT_TRUE(found.ok());
  std::vector<std::string> places;
  for (const ResultTable& t : found->tables)
    places.push_back(fmt::format("{} {} {}", t.step, t.rank, t.time.back()));
  EXPECT_THAT(places, ElementsAre("-1 0 6", "-1 1 6", "3 0 6"));
  EXPECT_THAT(EnglishOf(found->notes), ElementsAre(HasSubstr("1 older table")));
}

// Each part of a comparison writes tables, and merge_result the document of all.
TEST(ResultFolder, TheDocumentOfAllPartsIsNewerThanTheirTables) {
  const TemporaryFolder folder;
  folder.Write("compare_result_rank0_20260102030405.csv", "x\n");
  folder.Write("compare_result_rank1_20260102030406.csv", "x\n");
  folder.Write("compare_finding_20260102030406.json", "x\n");
  Result<ResultFolder> found = FindResultTables(folder.path());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->finding, "");  // it is of rank 1 alone
  EXPECT_THAT(EnglishOf(found->notes), ElementsAre(HasSubstr("different times")));
  folder.Write("compare_finding_20260102030407.json.tmp", "x\n");
  const std::string newer = folder.Write("compare_finding_20260102030407.json", "x\n");
  found = FindResultTables(folder.path());
  EXPECT_EQ(found->finding, newer);
  EXPECT_THAT(found->notes, ElementsAre());
}

TEST(FindingJson, SaysWhatTheComparisonSaid) {
  const Comparison c = MustCompare(SmallRun(0.1, true), SmallRun(0, false));
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "report.json");
  ASSERT_TRUE(WriteFileAtomically(path, compare::JsonReport(c)).ok());
  const Result<std::vector<JsonFinding>> found = ReadFindingJson(path);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 1u);
  const compare::RankResult& result = (*found)[0].result;
  EXPECT_EQ(result.first_name, "Functional.gelu.0.forward");
  EXPECT_EQ(result.first.why, c.first.why);
  EXPECT_EQ(result.first.source_line, c.first.source_line);
  EXPECT_EQ(result.summary.verdict, compare::Summarize(c).verdict);
  EXPECT_EQ(result.summary.calls, compare::Summarize(c).calls);
}

// What the report of all steps says of a step is not what its own document says.
TEST(FindingJson, StepsCountAsTheReportOfAllStepsSays) {
  const std::string own =
      compare::JsonReport(MustCompare(SmallRun(0.1, false), SmallRun(0, false)));
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "report.json");
  const auto step = [&](std::string_view state) {
    return fmt::format("{{\"ranks\": {{\"\": {{{},{}}}}}", state, own.substr(1));
  };
  const std::string carried = "\"counts_as\": \"noise\", \"rounding_of_step\": 0";
  const std::string update = "\"wrong_update\": {\"after_step\": 1, \"why\": \"no decay\"}";
  ASSERT_TRUE(WriteFileAtomically(path, fmt::format("{{\"steps\": {{\"1\": {}, \"2\": {}}}}}",
                                                    step(carried), step(update)))
                  .ok());
  const Result<std::vector<JsonFinding>> found = ReadFindingJson(path);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 2u);
  const compare::RankResult &first = (*found)[0].result, &second = (*found)[1].result;
  EXPECT_EQ(first.rounding_of_step, 0);
  EXPECT_EQ(first.summary.verdict, compare::RunVerdict::kNoise);
  EXPECT_LT(first.first.pair, 0);
  EXPECT_EQ(second.rounding_of_step, -1);
  EXPECT_EQ(second.wrong_update_after, 1);
  EXPECT_EQ(second.first_name, "update of the weights after step 1");
  EXPECT_EQ(second.first.why, "no decay");
}

TEST(FindingJson, AnotherDocumentIsRefused) {
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "other.json");
  ASSERT_TRUE(WriteFileAtomically(path, "{\"schema\": \"another/1\"}").ok());
  const Result<std::vector<JsonFinding>> found = ReadFindingJson(path);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("msprobe.compare/2"));
}

}  // namespace
}  // namespace msprobe::results
