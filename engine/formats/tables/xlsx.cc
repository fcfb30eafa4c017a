#include "engine/formats/tables/xlsx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <utility>

#include "engine/base/atomic_file.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/xlsx_text.h"

namespace msprobe::formats {
namespace {

constexpr size_t kMaxNameCharacters = 31;
constexpr double kColumnWidth = 18;                   // characters
constexpr uint64_t kMaxPart = uint64_t{4'000} << 20;  // bytes of a file in the archive, or of it

constexpr std::string_view kXml = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
constexpr std::string_view kMain = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
constexpr std::string_view kRelationships =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
constexpr std::string_view kPackage =
    "http://schemas.openxmlformats.org/package/2006/relationships";
constexpr std::string_view kContentTypes =
    "http://schemas.openxmlformats.org/package/2006/content-types";

// One cell style for each RowColor, in its order.
std::string Styles() {
  std::string text = fmt::format(
      "{}<styleSheet xmlns=\"{}\"><fonts count=\"2\"><font><sz val=\"11\"/><name "
      "val=\"Calibri\"/></font><font><b/><sz val=\"11\"/><name val=\"Calibri\"/></font></fonts>"
      "<fills count=\"5\"><fill><patternFill patternType=\"none\"/></fill><fill><patternFill "
      "patternType=\"gray125\"/></fill>",
      kXml, kMain);
  for (const std::string_view color : {"FFFF0000", "FFFFFF00", "FFE0E0E0"}) {
    text += fmt::format(
        "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"{}\"/><bgColor "
        "indexed=\"64\"/></patternFill></fill>",
        color);
  }
  text +=
      "</fills><borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border>"
      "</borders><cellStyleXfs count=\"1\"><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" "
      "borderId=\"0\"/></cellStyleXfs><cellXfs count=\"5\">";
  for (const auto& [font, fill] : {std::pair(0, 0), {0, 2}, {0, 3}, {0, 4}, {1, 0}}) {
    text += fmt::format(
        "<xf numFmtId=\"0\" fontId=\"{}\" fillId=\"{}\" borderId=\"0\" xfId=\"0\" "
        "applyFont=\"1\" applyFill=\"1\"/>",
        font, fill);
  }
  return text +
         "</cellXfs><cellStyles count=\"1\"><cellStyle name=\"Normal\" xfId=\"0\" "
         "builtinId=\"0\"/></cellStyles></styleSheet>";
}

std::string Letters(size_t column) {
  std::string text;
  for (size_t left = column + 1; left > 0; left = (left - 1) / 26) {
    text.insert(text.begin(), static_cast<char>('A' + (left - 1) % 26));
  }
  return text;
}

}  // namespace

struct XlsxWriter::State {
  AtomicFile file;
  ZipComposer zip;
  std::vector<std::string> names, filters;  // of the sheets; "$A$1:$C$9", or "" without a header
  bool in_sheet = false;
  uint32_t row = 1;
  uint32_t crc32 = 0;  // of the sheet so far
  uint64_t size = 0, stored = 0;
  std::string filter;  // of the sheet: "A1:C9"
  Status error;        // the first one; every later call returns it again

  Status Keep(Status status) {
    if (!status.ok() && error.ok()) error = status;
    return status;
  }
  Status WritePending() {
    const std::string bytes = zip.Take();
    return Keep(file.Write({bytes}));
  }
  Status Write(std::string_view xml);
  Status FinishSheet();
  Status AddFile(std::string_view name, const std::string& text) {
    zip.Add(name, text);
    return WritePending();
  }
};

XlsxWriter::XlsxWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlsxWriter::XlsxWriter(XlsxWriter&& other) noexcept = default;
XlsxWriter& XlsxWriter::operator=(XlsxWriter&& other) noexcept = default;
XlsxWriter::~XlsxWriter() = default;
uint32_t XlsxWriter::next_row() const { return state_->row; }

Result<XlsxWriter> XlsxWriter::Create(const std::string& path) {
  auto state = std::make_unique<State>();
  MSPROBE_ASSIGN_OR_RETURN(state->file, AtomicFile::Create(path));
  return XlsxWriter(std::move(state));
}

// Writes text of the sheet outside of its rows.
Status XlsxWriter::State::Write(std::string_view xml) {
  XlsxRows piece;
  piece.xml_ = xml;
  piece.Compress();
  crc32 = static_cast<uint32_t>(
      ::crc32_combine(crc32, piece.crc32_, static_cast<z_off_t>(piece.xml_.size())));
  size += piece.xml_.size();
  stored += piece.deflated_.size();
  return Keep(file.Write({piece.deflated_}));
}

Status XlsxWriter::AddSheet(const XlsxSheet& sheet) {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  if (sheet.header.size() > kMaxXlsxColumns) {
    return InvalidArgument()
        .Expected("at most {} columns"_t(kMaxXlsxColumns))
        .Found(fmt::format("{}", sheet.header.size()));
  }
  const std::string name = XlsxText(sheet.name, kMaxNameCharacters);
  const bool taken = std::any_of(s.names.begin(), s.names.end(), [&](const std::string& other) {
    return Lower(other) == Lower(name);
  });
  if (name.empty() || taken || name.find_first_of("[]:*?/\\") != name.npos ||
      name.front() == '\'' || name.back() == '\'') {
    return InvalidArgument(
        taken ? "{}: sheet name {}: there is one of that name"_t(s.file.path(), Excerpt(name))
              : "{}: sheet name {}: Excel refuses empty names and []:*?/\\ in them"_t(
                    s.file.path(), Excerpt(name)));
  }
  MSPROBE_RETURN_IF_ERROR(s.FinishSheet());
  s.names.push_back(name);
  const bool has_header = !sheet.header.empty();
  s.filter =
      has_header ? fmt::format("A1:{}{}", Letters(sheet.header.size() - 1), sheet.rows + 1) : "";
  s.filters.push_back(
      has_header ? fmt::format("$A$1:${}${}", Letters(sheet.header.size() - 1), sheet.rows + 1)
                 : "");
  s.in_sheet = true;
  s.row = 1;
  s.crc32 = 0;
  s.size = s.stored = 0;
  s.zip.BeginDeflated(fmt::format("xl/worksheets/sheet{}.xml", s.names.size()));
  MSPROBE_RETURN_IF_ERROR(s.WritePending());
  std::string xml = fmt::format("{}<worksheet xmlns=\"{}\">", kXml, kMain);
  if (has_header) {
    xml +=
        "<sheetViews><sheetView workbookViewId=\"0\"><pane ySplit=\"1\" topLeftCell=\"A2\" "
        "activePane=\"bottomLeft\" state=\"frozen\"/></sheetView></sheetViews>";
  }
  const size_t columns = std::max(sheet.header.size(), sheet.widths.size());
  if (columns > 0) xml += "<cols>";
  for (size_t i = 0; i < columns; ++i) {
    xml += fmt::format("<col min=\"{0}\" max=\"{0}\" width=\"{1}\" customWidth=\"1\"/>", i + 1,
                       i < sheet.widths.size() ? sheet.widths[i] : kColumnWidth);
  }
  if (columns > 0) xml += "</cols>";
  MSPROBE_RETURN_IF_ERROR(s.Write(xml + "<sheetData>"));
  if (!has_header) return Status::Ok();
  XlsxRows header(1);
  header.BeginRow(RowColor::kBold);
  for (const std::string_view cell : sheet.header) header.TextCell(cell);
  header.EndRow();
  header.Compress();
  return Append({&header, 1});
}

Status XlsxWriter::Append(std::span<const XlsxRows> pieces) {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  if (!s.in_sheet) return Internal("rows before AddSheet, or after Close"_t);
  std::vector<std::string_view> bytes;
  for (const XlsxRows& piece : pieces) {
    if (piece.columns_ > kMaxXlsxColumns || piece.row_ > kMaxXlsxRows + 1) {
      return s.Keep(
          InvalidArgument("{}: a sheet of {} rows and {} columns; Excel has "
                          "{} and {}"_t(s.file.path(), piece.row_ - 1, piece.columns_, kMaxXlsxRows,
                                        kMaxXlsxColumns)));
    }
    s.row = piece.row_;
    s.crc32 = static_cast<uint32_t>(
        ::crc32_combine(s.crc32, piece.crc32_, static_cast<z_off_t>(piece.xml_.size())));
    s.size += piece.xml_.size();
    s.stored += piece.deflated_.size();
    bytes.push_back(piece.deflated_);
  }
  if (s.size > kMaxPart || s.file.size() + s.stored > kMaxPart) {
    return s.Keep(
        Unsupported("{}: more than 4 GB of rows do not fit into a workbook"_t(s.file.path()))
            .Hint("csv has no such limit"_t));
  }
  return s.Keep(s.file.Write(bytes));
}

Status XlsxWriter::State::FinishSheet() {
  if (!std::exchange(in_sheet, false)) return Status::Ok();
  MSPROBE_RETURN_IF_ERROR(Write(
      filter.empty() ? "</sheetData></worksheet>"
                     : fmt::format("</sheetData><autoFilter ref=\"{}\"/></worksheet>", filter)));
  constexpr std::string_view kLastBlock("\x03\x00", 2);  // empty, and marked as the last
  MSPROBE_RETURN_IF_ERROR(Keep(file.Write({kLastBlock})));
  zip.EndDeflated(crc32, stored + kLastBlock.size(), size);
  return WritePending();
}

Status XlsxWriter::Close() {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  if (s.names.empty()) return Internal("a workbook without a sheet, or closed twice"_t);
  MSPROBE_RETURN_IF_ERROR(s.FinishSheet());
  std::string types = fmt::format(
      "{}<Types xmlns=\"{}\"><Default Extension=\"rels\" "
      "ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/><Default "
      "Extension=\"xml\" ContentType=\"application/xml\"/><Override PartName=\"/xl/workbook.xml\" "
      "ContentType=\"application/"
      "vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml\"/><Override "
      "PartName=\"/xl/styles.xml\" "
      "ContentType=\"application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml\"/>",
      kXml, kContentTypes);
  std::string book =
      fmt::format("{}<workbook xmlns=\"{}\" xmlns:r=\"{}\"><sheets>", kXml, kMain, kRelationships);
  std::string links = fmt::format("{}<Relationships xmlns=\"{}\">", kXml, kPackage);
  std::string filters;
  const auto link = [](size_t id, std::string_view type, std::string_view target) {
    return fmt::format("<Relationship Id=\"rId{}\" Type=\"{}/{}\" Target=\"{}\"/>", id,
                       kRelationships, type, target);
  };
  for (size_t i = 0; i < s.names.size(); ++i) {
    std::string name, quoted;
    AppendXmlText(&name, s.names[i]);
    for (const char c : name) quoted += c == '\'' ? "''" : std::string(1, c);
    types += fmt::format(
        "<Override PartName=\"/xl/worksheets/sheet{}.xml\" ContentType=\"application/"
        "vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml\"/>",
        i + 1);
    book += fmt::format("<sheet name=\"{}\" sheetId=\"{}\" r:id=\"rId{}\"/>", name, i + 1, i + 1);
    links += link(i + 1, "worksheet", fmt::format("worksheets/sheet{}.xml", i + 1));
    if (!s.filters[i].empty()) {
      filters += fmt::format(
          "<definedName name=\"_xlnm._FilterDatabase\" localSheetId=\"{}\" "
          "hidden=\"1\">'{}'!{}</definedName>",
          i, quoted, s.filters[i]);
    }
  }
  book += "</sheets>";
  if (!filters.empty()) book += "<definedNames>" + filters + "</definedNames>";
  links += link(s.names.size() + 1, "styles", "styles.xml") + "</Relationships>";
  MSPROBE_RETURN_IF_ERROR(s.AddFile("[Content_Types].xml", types + "</Types>"));
  MSPROBE_RETURN_IF_ERROR(s.AddFile(
      "_rels/.rels", fmt::format("{}<Relationships xmlns=\"{}\">{}</Relationships>", kXml, kPackage,
                                 link(1, "officeDocument", "xl/workbook.xml"))));
  MSPROBE_RETURN_IF_ERROR(s.AddFile("xl/workbook.xml", book + "</workbook>"));
  MSPROBE_RETURN_IF_ERROR(s.AddFile("xl/_rels/workbook.xml.rels", links));
  MSPROBE_RETURN_IF_ERROR(s.AddFile("xl/styles.xml", Styles()));
  s.zip.Finish();
  MSPROBE_RETURN_IF_ERROR(s.WritePending());
  s.names.clear();
  return s.file.Commit();
}

}  // namespace msprobe::formats
