#include "engine/formats/xlsx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/formats/xlsx_text.h"
#include "tests/formats/golden.h"

namespace msprobe {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kHeader[] = {"Name", "Value"};

// One part of a workbook, "xl/worksheets/sheet1.xml".
std::string Part(const std::string& path, const std::string& name) {
  const std::string bytes = ReadWhole(path);
  const Result<ZipReader> zip = ZipReader::Open(bytes, path);
  EXPECT_TRUE(zip.ok()) << zip.status().message();
  const ZipEntry* entry = zip.ok() ? zip->Find(name) : nullptr;
  if (entry == nullptr) return "";
  const Result<ZipContent> content = zip->Read(*entry, 1 << 24);
  EXPECT_TRUE(content.ok()) << content.status().message();
  return std::string(content->bytes);
}

TEST(Xlsx, HeaderCellsAndColours) {
  const std::string folder = TestFolder(), path = folder + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book.ok()) << book.status().message();
  ASSERT_TRUE(book->AddSheet("result", kHeader).ok());
  book->TextCell("=1+1"), book->NumberCell(0.5);
  ASSERT_TRUE(book->EndRow(RowColor::kRed).ok());
  book->TextCell("a<b&\"c\""), book->NumberCell(std::nan(""));
  ASSERT_TRUE(book->EndRow(RowColor::kYellow).ok());
  EXPECT_FALSE(IsRegularFile(path)) << "only Close makes the file";
  ASSERT_TRUE(book->Close().ok());
  ExpectFolderHolds(folder, {"t.xlsx"});
  const std::string sheet = Part(path, "xl/worksheets/sheet1.xml");
  EXPECT_THAT(sheet, HasSubstr("<t>=1+1</t>"));
  EXPECT_THAT(sheet, Not(HasSubstr("<f>"))) << "a name must not become a formula";
  EXPECT_THAT(sheet, HasSubstr("<v>0.5</v>"));
  EXPECT_THAT(sheet, HasSubstr("a&lt;b&amp;"));
  EXPECT_THAT(sheet, HasSubstr("<t>nan</t>"));
  EXPECT_THAT(sheet, HasSubstr("<autoFilter ref=\"A1:B3\"/>"));
  EXPECT_THAT(sheet, HasSubstr("state=\"frozen\""));
  EXPECT_THAT(Part(path, "xl/styles.xml"), HasSubstr("FFFF0000"));
}

TEST(Xlsx, LongTablesGoOnInMoreSheets) {
  const std::string path = TestFolder() + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book.ok());
  book->set_max_rows(4);
  ASSERT_TRUE(book->AddSheet("a sheet with a name of 31 chars", kHeader).ok());
  for (int i = 0; i < 7; ++i) {
    book->TextCell("row"), book->NumberCell(i);
    ASSERT_TRUE(book->EndRow().ok());
  }
  ASSERT_TRUE(book->AddSheet("second", kHeader).ok());
  ASSERT_TRUE(book->Close().ok());
  const std::string names = Part(path, "xl/workbook.xml");
  EXPECT_THAT(names, HasSubstr("a sheet with a name of 31 chars"));
  EXPECT_THAT(names, HasSubstr("a sheet with a name of 3_part_2"));
  EXPECT_THAT(names, HasSubstr("a sheet with a name of 3_part_3"));
  EXPECT_THAT(names, HasSubstr("second"));
  EXPECT_THAT(Part(path, "xl/worksheets/sheet3.xml"), HasSubstr("<v>6</v>"));
  EXPECT_THAT(Part(path, "xl/worksheets/sheet3.xml"), HasSubstr("Name"))
      << "each part has the header";
}

TEST(Xlsx, ErrorsLeaveNothingBehind) {
  const std::string folder = TestFolder();
  EXPECT_EQ(XlsxWriter::Create(folder + "/none/t.xlsx").status().code(), ErrorCode::kIo);
  {
    Result<XlsxWriter> book = XlsxWriter::Create(folder + "/t.xlsx");
    ASSERT_TRUE(book.ok());
    const Status status = book->AddSheet("what?", kHeader);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("what?"));
    EXPECT_EQ(book->AddSheet("x", {}).code(), ErrorCode::kInvalidArgument);
    EXPECT_FALSE(book->EndRow().ok()) << "no sheet yet";
    EXPECT_FALSE(book->Close().ok());
  }
  {
    Result<XlsxWriter> book = XlsxWriter::Create(folder + "/t.xlsx");
    ASSERT_TRUE(book->AddSheet("x", kHeader).ok());
    EXPECT_EQ(book->AddSheet("X", kHeader).code(), ErrorCode::kInvalidArgument)
        << "names differ in more than case";
  }
  ExpectFolderHolds(folder, {});
}

TEST(XlsxText, IsAlwaysValidUtf8WithinTheLimit) {
  EXPECT_EQ(XlsxText("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(XlsxText("a\xff\xc3(b"), "a\xef\xbf\xbd\xef\xbf\xbd(b");
  EXPECT_EQ(XlsxText(std::string_view("a\0b", 3)),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(XlsxText("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") << "a lone surrogate";
  EXPECT_EQ(XlsxText("\xef\xbf\xbf").size(), 9u) << "U+FFFF is not XML";
  EXPECT_EQ(XlsxText("\xf0\x9f\x98"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd")
      << "cut inside a sequence";
  EXPECT_EQ(XlsxText(std::string(50, 'x'), 40), std::string(34, 'x') + " [cut]");
  EXPECT_EQ(XlsxText("abcdef", 3), "abc");
  std::string faces;
  for (int i = 0; i < 20; ++i) faces += "\xf0\x9f\x98\x80";  // two UTF-16 units each
  EXPECT_EQ(XlsxText(faces, 40), faces);
  EXPECT_EQ(XlsxText(faces, 39), faces.substr(0, 16 * 4) + " [cut]");
  EXPECT_EQ(XlsxText(std::string(kMaxXlsxCharacters, 'x')).size(), kMaxXlsxCharacters);
}

}  // namespace
}  // namespace msprobe
