#include "engine/compare/merge_ranks.h"

#include <gmock/gmock.h>

#include "engine/base/file.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tables/xlsx.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::compare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// "sheet|cell|cell" for each line.
std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  const Status status = formats::ReadTableFile(path, [&](const formats::TableLine& line) {
    std::string text(line.sheet);
    for (const std::string_view cell : line.cells) text += "|" + std::string(cell);
    lines.push_back(text);
    return true;
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return lines;
}

class MergeResults : public ::testing::Test {
 protected:
  static std::string Table(const std::string& norm) {
    return "NPU Name,Bench Name,NormRelativeErr,NPU max,Bench max,Requires_grad Consistent\n"
           "Functional.a.0.forward.input.0,x,0.0%,1,1,True\n"
           "Distributed.all_reduce.0.forward.output.0,x," +
           norm + ",3.0,4.0,True\n";
  }
  Result<MergedTables> Merge(MergeConfig config) { return MergeRanks(folder_.path(), config); }
  const TemporaryFolder folder_;
};

TEST_F(MergeResults, SideBySideByRank) {
  folder_.Write("compare_result_rank10_20260102030405.csv", Table("5.0%"));
  folder_.Write("compare_result_rank2_20260102030405.csv", Table("N/A"));
  folder_.Write("compare_summary_20260102030405.csv", "x\n");
  const auto merged = Merge({{"Distributed.all_reduce"}, {}});
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_THAT(merged->ranks, ElementsAre(2, 10));
  ASSERT_EQ(merged->indices.size(), 2u);
  EXPECT_EQ(merged->indices[0].name, "NormRelativeErr");
  ASSERT_THAT(merged->indices[0].rows, SizeIs(1));
  EXPECT_EQ(merged->indices[0].rows[0].values.at(10), "5.0%");
  EXPECT_EQ(merged->indices[0].rows[0].values.at(2), "NPU:3.0  Bench:4.0");
  EXPECT_EQ(merged->indices[1].name, "Requires_grad Consistent");

  const std::string path = JoinPath(folder_.path(), "merged.xlsx");
  ASSERT_TRUE(WriteMerged(*merged, path).ok());
  EXPECT_THAT(LinesOf(path),
              ElementsAre("NormRelativeErr|NPU Name|rank2|rank10",
                          "NormRelativeErr|Distributed.all_reduce.0.forward.output.0|NPU:3.0  "
                          "Bench:4.0|5.0%",
                          "Requires_grad Consistent|NPU Name|rank2|rank10",
                          "Requires_grad Consistent|Distributed.all_reduce.0.forward.output.0|True|"
                          "True"));
}

TEST_F(MergeResults, WorkbooksOfMsprobe1AndTheNewestOfARank) {
  const std::string path =
      JoinPath(folder_.path(), "compare_result_rank0-rank0_20260102030405.xlsx");
  Result<formats::XlsxWriter> book = formats::XlsxWriter::Create(path);
  ASSERT_TRUE(book->AddSheet({.name = "Sheet1", .header = {"NPU Name", "Cosine"}, .rows = 1}).ok());
  formats::XlsxRows rows(2);
  rows.BeginRow(), rows.TextCell("Torch.mm.0.forward.output.0"), rows.NumberCell(0.5);
  rows.EndRow();
  rows.Compress();
  ASSERT_TRUE(book->Append({&rows, 1}).ok());
  ASSERT_TRUE(book->AddSheet({.name = "summary"}).ok());
  ASSERT_TRUE(book->Close().ok());
  folder_.Write("compare_result_rank1_20260102030405.csv", "NPU Name,Cosine\n");
  folder_.Write("compare_result_rank1_20270102030405.csv",
                "NPU Name,Cosine\nTorch.mm.0.forward.output.0,0.25\n");
  const auto merged = Merge({{"Torch.mm"}, {"Cosine", "Cosin"}});
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  ASSERT_THAT(merged->indices, SizeIs(1));
  EXPECT_THAT(merged->indices[0].rows[0].values,
              ElementsAre(std::pair(0, "0.5"), std::pair(1, "0.25")));
  EXPECT_THAT(merged->notes, SizeIs(3));
  EXPECT_THAT(merged->notes[0].English(), HasSubstr("is newer"));
  EXPECT_THAT(merged->notes[1].English(), HasSubstr("did you mean Cosine"));
}

TEST_F(MergeResults, SheetsHaveNamesOfTheirOwn) {
  const std::string stem(31, 'n');
  MergedTables merged{.ranks = {0}};
  for (const std::string& name :
       {std::string("a/b"), std::string("A*b"), std::string("a_b"), stem + "1", stem + "2"})
    merged.indices.push_back({.name = name});
  const std::string path = JoinPath(folder_.path(), "merged.xlsx");
  const Status status = WriteMerged(merged, path);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_THAT(LinesOf(path),
              ElementsAre("a_b|NPU Name|rank0", "A_b~2|NPU Name|rank0", "a_b~3|NPU Name|rank0",
                          stem + "|NPU Name|rank0", stem.substr(2) + "~2|NPU Name|rank0"));
}

TEST_F(MergeResults, TablesOfManyRanksMayLackRowsThatAgree) {
  const auto write = [&](size_t ranks) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      const bool has_row = rank != 1;
      folder_.Write("compare_result_rank" + std::to_string(rank) + "_20260102030405.csv",
                    has_row ? Table("1%") : "NPU Name,Bench Name,NormRelativeErr\n");
    }
  };
  write(kManyRanks);
  EXPECT_THAT(Merge({{"Distributed.all_reduce"}, {"NormRelativeErr"}})->notes, SizeIs(0));
  write(kManyRanks + 1);
  const auto merged = Merge({{"Distributed.all_reduce"}, {"NormRelativeErr"}});
  ASSERT_THAT(merged->notes, SizeIs(1));
  EXPECT_THAT(merged->notes[0].English(), HasSubstr("1 values, which no table has"));
  EXPECT_THAT(Merge({{"Torch.none"}, {}}).status().hint(), HasSubstr("--all-rows"));
}

TEST_F(MergeResults, InputsThatCannotBeMergedAreRefused) {
  EXPECT_EQ(Merge({{"a"}, {}}).status().code(), ErrorCode::kInvalidArgument);  // no file
  folder_.Write("compare_result_rank0_20260102030405.csv", Table("1%"));
  folder_.Write("compare_result_rank1_20260102030405.csv", Table("1%"));
  EXPECT_THAT(Merge({{"Torch.none"}, {}}).status().message(), HasSubstr("no row of 2 tables"));
  EXPECT_THAT(Merge({{"Distributed.all_reduce"}, {"Cosine"}}).status().message(),
              HasSubstr("no table has a column"));
  folder_.Write("compare_result_rank2_20260102030405.csv", "a,b\n");
  EXPECT_THAT(Merge({{"Distributed.all_reduce"}, {}}).status().message(), HasSubstr("NPU Name"));
  folder_.Write("compare_result_rank2_20260102030405.csv", "");
  EXPECT_FALSE(Merge({{"Distributed.all_reduce"}, {}}).ok());
}

TEST_F(MergeResults, Configuration) {
  const auto config = ReadMergeConfig(
      folder_.Write("a.yaml", "api:\n  - Distributed.all_reduce\ncompare_index:\n"));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->apis, ElementsAre("Distributed.all_reduce"));
  EXPECT_FALSE(ReadMergeConfig(folder_.Write("b.yaml", "compare_index: [Cosine]\n")).ok());
  EXPECT_FALSE(ReadMergeConfig(folder_.Write("c.yaml", "apis: [x]\n")).ok());
}

}  // namespace
}  // namespace msprobe::compare
