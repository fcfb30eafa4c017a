#include "engine/formats/tables/xlsx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/formats/tables/xlsx_text.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<std::string_view> kHeader = {"Name", "Value"};

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

// A sheet of these rows, in one piece.
Status AddRows(XlsxWriter* book, XlsxRows rows) {
  rows.Compress();
  return book->Append({&rows, 1});
}

TEST(Xlsx, HeaderCellsAndColours) {
  const std::string folder = TestFolder(), path = folder + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book.ok()) << book.status().message();
  ASSERT_TRUE(book->AddSheet({.name = "result", .header = kHeader, .rows = 2}).ok());
  XlsxRows rows(book->next_row());
  rows.BeginRow(RowColor::kRed), rows.TextCell("=1+1"), rows.NumberCell(0.5), rows.EndRow();
  rows.BeginRow(RowColor::kYellow), rows.TextCell("a<b&\"c\"\x07"), rows.NumberCell(std::nan(""));
  rows.EndRow();
  ASSERT_TRUE(AddRows(&*book, std::move(rows)).ok());
  EXPECT_FALSE(IsRegularFile(path)) << "only Close makes the file";
  ASSERT_TRUE(book->Close().ok());
  ExpectFolderHolds(folder, {"t.xlsx"});
  const std::string sheet = Part(path, "xl/worksheets/sheet1.xml");
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A2\" s=\"1\" t=\"inlineStr\"><is><t>=1+1</t>"));
  EXPECT_THAT(sheet, Not(HasSubstr("<f>"))) << "a name must not become a formula";
  EXPECT_THAT(sheet, HasSubstr("<v>0.5</v>"));
  EXPECT_THAT(sheet, HasSubstr("a&lt;b&amp;&quot;c&quot;_x0007_"));
  EXPECT_THAT(sheet, HasSubstr("<t>nan</t>"));
  EXPECT_THAT(sheet, HasSubstr("<autoFilter ref=\"A1:B3\"/>"));
  EXPECT_THAT(sheet, HasSubstr("state=\"frozen\""));
  EXPECT_THAT(Part(path, "xl/styles.xml"), HasSubstr("FFFF0000"));
}

TEST(Xlsx, SpelledNumbersAndWhatLooksLikeThem) {
  const std::string path = TestFolder() + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book->AddSheet({.name = "s"}).ok());
  XlsxRows rows(book->next_row());
  rows.BeginRow();
  for (const char* text : {"1e-05", "1234567890123456", "0x10", "", " inf", "nan"}) {
    rows.SpelledCell(text);
  }
  rows.EndRow();
  ASSERT_TRUE(AddRows(&*book, std::move(rows)).ok());
  ASSERT_TRUE(book->Close().ok());
  const std::string sheet = Part(path, "xl/worksheets/sheet1.xml");
  EXPECT_THAT(sheet, HasSubstr("<c r=\"A1\"><v>1e-05</v></c>"));
  EXPECT_THAT(sheet, HasSubstr("<t>1234567890123456</t>")) << "no digit may be lost";
  EXPECT_THAT(sheet, HasSubstr("<t>0x10</t>"));
  EXPECT_THAT(sheet, Not(HasSubstr("\"D1\"")));
  EXPECT_THAT(sheet, HasSubstr("xml:space=\"preserve\"> inf</t>"));
}

TEST(Xlsx, PiecesAreJoined) {
  const std::string path = TestFolder() + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book->AddSheet({.name = "s", .header = kHeader, .rows = 3000}).ok());
  std::vector<XlsxRows> pieces;
  for (uint32_t start = 2; start < 3002; start += 1000) {
    XlsxRows& rows = pieces.emplace_back(start);
    for (int i = 0; i < 1000; ++i) {
      rows.BeginRow(), rows.TextCell("row"), rows.NumberCell(i), rows.EndRow();
    }
    rows.Compress();
  }
  ASSERT_TRUE(book->Append(pieces).ok());
  EXPECT_EQ(book->next_row(), 3002u);
  ASSERT_TRUE(book->Close().ok());
  const std::string sheet = Part(path, "xl/worksheets/sheet1.xml");
  EXPECT_THAT(sheet, HasSubstr("<row r=\"3001\">"));
  EXPECT_THAT(sheet, testing::EndsWith("</worksheet>"));
}

TEST(Xlsx, ErrorsLeaveNothingBehind) {
  const std::string folder = TestFolder();
  EXPECT_EQ(XlsxWriter::Create(folder + "/none/t.xlsx").status().code(), ErrorCode::kIo);
  {
    Result<XlsxWriter> book = XlsxWriter::Create(folder + "/t.xlsx");
    ASSERT_TRUE(book.ok());
    const Status status = book->AddSheet({.name = "what?"});
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("what?"));
    EXPECT_FALSE(AddRows(&*book, XlsxRows(1)).ok()) << "no sheet yet";
    EXPECT_FALSE(book->Close().ok());
  }
  {
    Result<XlsxWriter> book = XlsxWriter::Create(folder + "/t.xlsx");
    ASSERT_TRUE(book->AddSheet({.name = "x", .header = kHeader}).ok());
    EXPECT_EQ(book->AddSheet({.name = "X"}).code(), ErrorCode::kInvalidArgument)
        << "names differ in more than case";
    EXPECT_EQ(AddRows(&*book, XlsxRows(kMaxXlsxRows + 2)).code(), ErrorCode::kInvalidArgument);
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
}  // namespace msprobe::formats
