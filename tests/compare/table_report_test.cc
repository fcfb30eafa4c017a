#include "engine/compare/table/table_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/compare/table/advisor.h"
#include "engine/formats/tables/csv.h"
#include "engine/formats/tables/table_file.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;

Comparison Calls(int n) {
  DumpBuilder t, g;
  for (int i = 0; i < n; ++i) {
    const std::string name = "Torch.f." + std::to_string(i) + ".forward";
    t.Call(name).Out(Numbers(i, 0, 1, 1));
    g.Call(name).Out(Numbers(i, 0, 1, 1));
  }
  return MustCompare(t.Take(), g.Take());
}

std::string Csv(const Comparison& c, const TableOptions& options = {}) {
  std::string text;
  const Status status =
      StreamTableCsv(TableFormat(c, options), [&](std::span<const std::string_view> pieces) {
        for (std::string_view p : pieces) text += p;
        return Status::Ok();
      });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return text;
}

TEST(TableReport, RowsKeepTheirOrderAcrossThreads) {
  constexpr int kRows = 20011;  // several waves, the last one not full
  const std::string text = Csv(Calls(kRows));
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), kRows + 1);
  size_t at = text.find('\n') + 1;
  for (int i = 0; i < kRows; ++i) {
    const std::string name = "Torch.f." + std::to_string(i) + ".forward.output.0,";
    ASSERT_EQ(text.compare(at, name.size(), name), 0) << i;
    at = text.find('\n', at) + 1;
  }
}

TEST(TableReport, OneThreadWorksBesideTheTable) {
  for (const int rows : {0, 1, 2000}) {
    const Comparison c = Calls(rows);
    std::string text;
    int calls = 0;
    const Status status = StreamTableCsv(
        TableFormat(c),
        [&](std::span<const std::string_view> pieces) {
          for (std::string_view p : pieces) text += p;
          return Status::Ok();
        },
        {}, [&] { ++calls; });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(text, Csv(c));
    EXPECT_EQ(calls, 1) << rows;
  }
}

TEST(TableReport, ALineIsTheCellsOfItsRow) {
  DumpBuilder t, g;
  t.Call("Torch.=f,\"x\".0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(3, 0, 1.5, 1));
  g.Call("Torch.=f,\"x\".0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(2, -7, 1, 1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  const TableFormat table(c);
  for (size_t i = 0; i < table.rows(); ++i) {
    TableRow row;
    table.Fill(i, &row);
    formats::CsvWriter cells;
    for (const TableCell& cell : row.cells) {
      cell.kind == CellKind::kText ? cells.TextCell(row.TextOf(cell))
                                   : cells.NumberCell(row.TextOf(cell));
    }
    cells.EndRow();
    TextBuffer line;
    table.AppendCsv(i, &line);
    EXPECT_EQ(line.view(), cells.text());
  }
}

// One call whose input agrees, one that agrees, one that only the target has.
Comparison SomeDiffer() {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward")
      .In(Numbers(1, 0, 1, 1))
      .Out(Numbers(3, 0, 1.5, 1))
      .At("a.py", 3, "y = f(x)");
  g.Call("Torch.f.0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(2, -7, 1, 1));
  t.Call("Torch.g.0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(1, 0, 1, 2));
  g.Call("Torch.g.0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(1, 0, 1, 2));
  t.Call("Torch.h.0.forward").In(Numbers(4, 0, 1, 1));
  return MustCompare(t.Take(), g.Take());
}

TEST(TableReport, RowsThatAgreeAreLeftOut) {
  const Comparison c = SomeDiffer();
  const TableFormat table(c, {.only_differing = true});
  ASSERT_EQ(table.rows(), 5u);
  ASSERT_EQ(table.written_rows(), 2u);
  EXPECT_EQ(table.WrittenRow(0), 1u);
  EXPECT_EQ(table.WrittenRow(1), 4u);
  const std::string all = Csv(c), some = Csv(c, {.only_differing = true});
  EXPECT_EQ(std::count(some.begin(), some.end(), '\n'), 3);
  EXPECT_EQ(some.substr(0, some.find('\n')), all.substr(0, all.find('\n')));
  EXPECT_NE(some.find("\nTorch.f.0.forward.output.0,"), std::string::npos) << some;
  EXPECT_NE(some.find("\nTorch.h.0.forward.input.0,"), std::string::npos) << some;
  // The stack stands in the first row of a call, the first of those that are written.
  EXPECT_NE(some.find("['File a.py, line 3, in forward, "), std::string::npos) << some;
}

TEST(TableReport, TheAdvisorCountsTheRowsOfItsTable) {
  const Comparison c = SomeDiffer();
  const auto advice = [&](bool only_differing) {
    const TableOptions options{.generation = Generation::k8, .only_differing = only_differing};
    return AdvisorText(c, TableFormat(c, options), options.generation);
  };
  EXPECT_EQ(advice(false).substr(0, 8), "Line: 1\n");
  EXPECT_EQ(advice(true).substr(0, 8), "Line: 0\n");
}

TEST(TableReport, TheSheetSummarySaysHowManyRowsAreLeftOut) {
  const TemporaryFolder folder;
  const Comparison c = SomeDiffer();
  for (const bool only_differing : {true, false}) {
    const std::string path = folder.path() + "/a.xlsx";
    ASSERT_TRUE(WriteTableXlsx(TableFormat(c, {.only_differing = only_differing}), path).ok());
    std::string said;
    size_t rows = 0;
    const Status read = formats::ReadTableFile(path, [&](const formats::TableLine& line) {
      if (line.sheet == "compare_result") ++rows;
      if (line.cells[0] == "rows left out") said = line.cells[1];
      return true;
    });
    ASSERT_TRUE(read.ok()) << read.ToString();
    EXPECT_EQ(rows, only_differing ? 3u : 6u);
    EXPECT_EQ(said, only_differing ? "3 of 5 agree; --all-rows writes them" : "");
  }
}

TEST(TableReport, NoRowsIsAHeader) {
  const std::string text = Csv(Calls(0));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.compare(0, 9, "NPU Name,"), 0);
}

TEST(TableReport, FormulasInNamesAreTextAndNumbersStayNumbers) {
  DumpBuilder t, g;
  t.Call("=cmd|x.f.0.forward").Out(Numbers(-1, -2, 0, 1));
  g.Call("=cmd|x.f.0.forward").Out(Numbers(-1, -3, 0, 1));
  const std::string text = Csv(MustCompare(t.Take(), g.Take()));
  EXPECT_NE(text.find("\n'=cmd|x.f.0.forward.output.0,'=cmd"), std::string::npos) << text;
  EXPECT_NE(text.find(",-1.0,-2.0,0.0,1.0,-1.0,-3.0,0.0,1.0,"), std::string::npos) << text;
}

TEST(TableReport, AFailingSinkStopsAndIsPassedOn) {
  const Comparison c = Calls(3);
  const Status status = StreamTableCsv(
      TableFormat(c), [&](std::span<const std::string_view>) { return Unsupported("full"_t); });
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
}

TEST(TableReport, WritesWholeFilesOrNone) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  const Comparison c = Calls(3);
  const TableFormat table(c);
  EXPECT_TRUE(WriteTableCsv(table, folder + "/a.csv").ok());
  EXPECT_TRUE(WriteTableXlsx(table, folder + "/a.xlsx").ok());
  EXPECT_FALSE(WriteTableCsv(table, folder + "/missing/a.csv").ok());
  EXPECT_FALSE(WriteTableXlsx(table, folder + "/missing/a.xlsx").ok());
  EXPECT_EQ(ReadWhole(folder + "/a.csv"), Csv(c));
  EXPECT_EQ(ReadWhole(folder + "/a.xlsx").substr(0, 2), "PK");
  EXPECT_EQ(ListDirectory(folder)->size(), 2u) << "nothing else is left";
}

}  // namespace
}  // namespace msprobe::compare
