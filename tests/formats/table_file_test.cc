#include "engine/formats/tables/table_file.h"

#include <gmock/gmock.h>

#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tables/xml.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Rows = std::vector<std::vector<std::string>>;

TableSink Into(Rows* rows) {
  return [rows](const TableLine& line) {
    rows->emplace_back(line.cells.begin(), line.cells.end());
    return true;
  };
}

Rows Csv(std::string_view text) {
  Rows rows;
  const Status status = ReadCsv(text, "t.csv", Into(&rows));
  EXPECT_TRUE(status.ok()) << status.message();
  return rows;
}

TEST(ReadCsv, QuotesLineEndsAndEmptyCells) {
  EXPECT_THAT(Csv("a,b\n1,\"x,\"\"y\"\"\nz\"\r\n,\n\n\"\",\n"),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("1", "x,\"y\"\nz"),
                          ElementsAre("", ""), ElementsAre("", "")));
  EXPECT_THAT(Csv("\xef\xbb\xbfName\nlast"), ElementsAre(ElementsAre("Name"), ElementsAre("last")));
  EXPECT_TRUE(Csv("").empty());
}

TEST(ReadCsv, InvalidTablesAreRefused) {
  Rows rows;
  const Status open = ReadCsv("a\n\"b", "t.csv", Into(&rows));
  EXPECT_THAT(open.message(), HasSubstr("t.csv:2: expected the closing quote"));
  EXPECT_FALSE(ReadCsv("\"a\"b", "t.csv", Into(&rows)).ok());
  EXPECT_FALSE(ReadCsv(std::string(70'000, ','), "t.csv", Into(&rows)).ok());
}

TEST(ReadCsv, TheSinkCanStopReading) {
  int lines = 0;
  ASSERT_TRUE(ReadCsv("1\n2\n3\n", "t.csv", [&](const TableLine&) { return ++lines < 2; }).ok());
  EXPECT_EQ(lines, 2);
}

TEST(ReadXlsx, OurOwnWorkbooksComeBack) {
  const std::string path = TestFolder() + "/t.xlsx";
  Result<XlsxWriter> book = XlsxWriter::Create(path);
  ASSERT_TRUE(book->AddSheet({.name = "one & only", .header = {"Name", "V"}, .rows = 2}).ok());
  XlsxRows rows(2);
  rows.BeginRow(), rows.TextCell("<a> \x07_x0041_ _x0042\x0f"), rows.SpelledCell("0.25"),
      rows.EndRow();
  rows.BeginRow(), rows.TextCell(""), rows.TextCell(" inf"), rows.EndRow();
  rows.Compress();
  ASSERT_TRUE(book->Append({&rows, 1}).ok());
  ASSERT_TRUE(book->Close().ok());
  Rows read;
  std::string sheet;
  const Status status = ReadTableFile(path, [&](const TableLine& line) {
    sheet = line.sheet;
    return Into(&read)(line);
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(sheet, "one & only");
  EXPECT_THAT(
      read, ElementsAre(ElementsAre("Name", "V"), ElementsAre("<a> \x07_x0041_ _x0042\x0f", "0.25"),
                        ElementsAre("", " inf")));
}

// A workbook as other programs write it.
std::string Workbook(std::string_view sheet, std::string_view strings = "",
                     std::string_view target = "worksheets/sheet1.xml") {
  ZipComposer zip;
  zip.Add("xl/workbook.xml",
          "<x:workbook xmlns:x='m' xmlns:r='r'><x:sheets><x:sheet name='Sheet1' sheetId='1' "
          "r:id='rId7'/></x:sheets></x:workbook>");
  zip.Add("xl/_rels/workbook.xml.rels", "<Relationships><Relationship Id='rId7' Target='" +
                                            std::string(target) + "'/></Relationships>");
  zip.Add("xl/worksheets/sheet1.xml", sheet);
  if (!strings.empty()) zip.Add("xl/sharedStrings.xml", strings);
  zip.Finish();
  return zip.Take();
}

Status ReadSheet(std::string_view sheet, Rows* rows, std::string_view strings = "") {
  return ReadXlsx(Workbook(sheet, strings), "t.xlsx", Into(rows));
}

TEST(ReadXlsx, SharedTextsGapsAndKinds) {
  Rows rows;
  const Status status = ReadSheet(
      "<worksheet><sheetData><row r='2'><c r='A2' t='s'><v>1</v></c><c r='C2'><v>1E-3</v></c>"
      "<c t='b'><v>1</v></c><c t='str'><f>x</f><v>&#65;&amp;</v></c></row><row/>"
      "<row><c t='inlineStr'><is><r><t>a</t></r><r><t>b</t></r><rPh><t>no</t></rPh></is></c></row>"
      "</sheetData></worksheet>",
      &rows, "<sst><si><t>zero</t></si><si><r><t>o</t></r><r><t>ne</t></r></si></sst>");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(rows, ElementsAre(ElementsAre("one", "", "1E-3", "TRUE", "A&"), ElementsAre("ab")));
}

TEST(ReadXlsx, HostileSheetsAreRefused) {
  Rows rows;
  const char* kSheets[] = {
      "<!DOCTYPE a [<!ENTITY x 'y'>]><worksheet/>",
      "<worksheet><sheetData><row><c t='s'><v>0</v></c></row></sheetData></worksheet>",
      "<worksheet><sheetData><row><c r='XFE1'><v>0</v></c></row></sheetData></worksheet>",
      "<worksheet><sheetData><row r='x'/></sheetData></worksheet>",
      "<worksheet><sheetData><row><c><v>&lol;</v></c></row></sheetData></worksheet>",
      "<worksheet><row r='1'><c t='inlineStr'><is><t>a<row></c></row></worksheet>",
      "<worksheet><sheetData>",
      "</worksheet>",
  };
  for (const char* sheet : kSheets) {
    const Status status = ReadSheet(sheet, &rows);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << sheet;
    EXPECT_THAT(status.message(), HasSubstr("t.xlsx")) << sheet;
  }
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "<a>";
  EXPECT_FALSE(ReadSheet(deep, &rows).ok());
  EXPECT_FALSE(
      ReadXlsx(Workbook("<worksheet/>", "", "worksheets/none.xml"), "t.xlsx", Into(&rows)).ok());
  EXPECT_TRUE(rows.empty());
}

TEST(Xml, AttributesTextsAndComments) {
  XmlCursor xml("<?xml version='1.0'?><!-- <b> --><a k=\"1 &lt; 2\" l='>'>t<![CDATA[<&]]></a>");
  ASSERT_TRUE(xml.Next());
  EXPECT_EQ(xml.Attribute("k"), "1 < 2");
  EXPECT_EQ(xml.Attribute("l"), ">");
  EXPECT_EQ(xml.Attribute("m"), "");
  std::string text;
  while (xml.Next()) xml.AppendText(&text);
  EXPECT_FALSE(xml.failed());
  EXPECT_EQ(text, "t<&");
}

}  // namespace
}  // namespace msprobe::formats
