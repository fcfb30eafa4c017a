#include "engine/formats/tables/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

std::string Text(std::string_view cell) {
  CsvWriter rows;
  rows.TextCell("first"), rows.TextCell(cell);
  return std::string(rows.text().substr(6));
}

std::string Number(double value) {
  CsvWriter rows;
  rows.NumberCell(value);
  return std::string(rows.text());
}

TEST(Csv, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(Text("plain text"), "plain text");
  EXPECT_EQ(Text("[2, 3]"), "\"[2, 3]\"");
  EXPECT_EQ(Text("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(Text("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(Text("two\rlines"), "\"two\rlines\"");
  EXPECT_EQ(Text("it's; fine\t"), "it's; fine\t");
  EXPECT_EQ(Text(""), "");
  EXPECT_EQ(Text("\ufeffname"), "\"\ufeffname\"") << "a file that begins so would lose it";
}

// Cells of a large table are formatted in place, with the same text as from CsvWriter.
TEST(Csv, ACellMadeInPlaceIsTheSame) {
  for (const std::string core :
       {"", "a", "=1+1", "-", "a,b", "[8, 128]", "say \"hi\"", "two\nlines", "two\rlines",
        "\uff1d1", "\ufeffname", "caf\u00e9", "\xff,", "sixteen letters.", "seventeen letters",
        "a name of more than 32 letters, x", "=SUM(A1), \"quoted\""}) {
    for (const bool guard : {true, false}) {
      CsvWriter expected;
      guard ? expected.TextCell(core) : expected.NumberCell(core);
      TextBuffer text;
      text += "before,";
      text += core;
      QuoteCsvCell(&text, 7, guard);
      EXPECT_EQ(text.view(), "before," + std::string(expected.text())) << core;
    }
  }
}

TEST(Csv, ANameIsNeverAFormula) {
  EXPECT_EQ(Text("=1+1"), "'=1+1");
  EXPECT_EQ(Text("+1"), "'+1");
  EXPECT_EQ(Text("-1"), "'-1");
  EXPECT_EQ(Text("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(Text("\t=1"), "'\t=1");
  EXPECT_EQ(Text("\r=1"), "\"'\r=1\"");
  EXPECT_EQ(Text("=HYPERLINK(\"x\",1)"), "\"'=HYPERLINK(\"\"x\"\",1)\"");
  for (const char* first : {"\uff1d", "\uff0b", "\uff0d", "\uff20"})
    EXPECT_EQ(Text(first), std::string("'") + first);
  EXPECT_EQ(Text("\uff21 = 1"), "\uff21 = 1");
  EXPECT_EQ(Text("a=b"), "a=b");
}

TEST(Csv, NumbersStayNumbers) {
  EXPECT_EQ(Number(-0.5), "-0.5");
  EXPECT_EQ(Number(1), "1.0");
  EXPECT_EQ(Number(1e-5), "1e-05");
  EXPECT_EQ(Number(std::nan("")), "nan");
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "-inf");
  CsvWriter rows;
  rows.NumberCell("-3.5"), rows.NumberCell(" inf"), rows.IntegerCell(-7), rows.EndRow();
  EXPECT_EQ(rows.text(), "-3.5, inf,-7\n");
}

TEST(Csv, RowsAndEmptyRows) {
  CsvWriter rows;
  rows.TextCell("a"), rows.TextCell(""), rows.TextCell("c"), rows.EndRow();
  rows.TextCell(""), rows.EndRow();
  rows.TextCell(""), rows.TextCell(""), rows.EndRow();
  EXPECT_EQ(rows.text(), "a,,c\n\"\"\n,\n");
  rows.Clear();
  rows.TextCell("b"), rows.EndRow();
  EXPECT_EQ(rows.text(), "b\n");
}

TEST(Csv, PartsAreWrittenInOrder) {
  std::vector<CsvWriter> parts(200);  // more parts than one system call takes
  std::string expected;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % 3 == 0) continue;  // some parts are empty
    parts[i].IntegerCell(static_cast<int64_t>(i)), parts[i].EndRow();
    expected += std::to_string(i) + "\n";
  }
  const std::string folder = TestFolder();
  ASSERT_TRUE(WriteCsv(folder + "/t.csv", parts).ok());
  EXPECT_EQ(ReadWhole(folder + "/t.csv"), expected);
  ExpectFolderHolds(folder, {"t.csv"});
}

TEST(Csv, ErrorsLeaveTheOldFile) {
  const std::string folder = TestFolder();
  CsvWriter rows;
  rows.TextCell("x"), rows.EndRow();
  EXPECT_EQ(WriteCsv(folder + "/none/t.csv", {&rows, 1}).code(), ErrorCode::kIo);
  ExpectFolderHolds(folder, {});
}

}  // namespace
}  // namespace msprobe::formats
