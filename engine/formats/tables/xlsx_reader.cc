// Workbooks as Excel, openpyxl, pandas and we write them: texts in the sheet or in a table of their
// own.
#include <fmt/format.h>

#include <charconv>
#include <deque>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tables/xml.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kMaxSheet = uint64_t{4} << 30;  // bytes of a sheet
constexpr uint64_t kMaxCells = uint64_t{1} << 29;  // empty ones among them

int HexDigit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// "_x0007_" is a control character: Excel's spelling. In place.
void DecodeControls(std::string* text) {
  if (text->find("_x") == text->npos) return;
  std::string out;
  for (size_t i = 0; i < text->size(); ++i) {
    const std::string_view rest = std::string_view(*text).substr(i, 7);
    const bool escaped = rest.size() == 7 && rest.starts_with("_x00") && rest[6] == '_' &&
                         HexDigit(rest[4]) >= 0 && HexDigit(rest[4]) < 8 && HexDigit(rest[5]) >= 0;
    out += escaped ? static_cast<char>(HexDigit(rest[4]) * 16 + HexDigit(rest[5])) : (*text)[i];
    if (escaped) i += 6;
  }
  *text = std::move(out);
}

// The column of a cell's reference, from 0: 27 for "AB12"; -1 for a text without a column.
int64_t ColumnOf(std::string_view reference) {
  int64_t column = 0;
  size_t i = 0;
  for (; i < reference.size() && reference[i] >= 'A' && reference[i] <= 'Z' && i < 4; ++i) {
    column = column * 26 + (reference[i] - 'A' + 1);
  }
  return i == 0 ? -1 : column - 1;
}

template <typename Number>
bool ParseNumber(std::string_view text, Number* out) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end;
}

class Book {
 public:
  Book(ZipReader zip, const std::string& path) : zip_(std::move(zip)), path_(path) {}

  Status Read(const TableSink& sink) {
    struct Sheet {
      std::string name, id;
    };
    std::vector<Sheet> sheets;
    MSPROBE_ASSIGN_OR_RETURN(const ZipContent book, Part("xl/workbook.xml"));
    XmlCursor xml(book.bytes);
    while (xml.Next()) {
      if (xml.kind() != XmlCursor::kOpen || xml.name() != "sheet") continue;
      Sheet& sheet = sheets.emplace_back();
      sheet.name = xml.Attribute("name");
      sheet.id = xml.Attribute("id");
    }
    if (xml.failed()) return xml.Error(path_ + ": xl/workbook.xml");
    MSPROBE_RETURN_IF_ERROR(ReadStrings());
    for (const Sheet& sheet : sheets) {
      MSPROBE_ASSIGN_OR_RETURN(const std::string part, TargetOf(sheet.id));
      if (!part.starts_with("xl/worksheets/")) continue;  // a chart
      bool stopped = false;
      MSPROBE_RETURN_IF_ERROR(ReadSheet(sheet.name, part, sink, &stopped));
      if (stopped) break;
    }
    return Status::Ok();
  }

 private:
  Result<ZipContent> Part(std::string_view name) {
    const ZipEntry* entry = zip_.Find(name);
    if (entry == nullptr) {
      return InvalidDump(path_)
          .Expected("a workbook"_t)
          .Found("an archive without {}"_t(Excerpt(name, 80)));
    }
    return zip_.Read(*entry, kMaxSheet);
  }

  Result<std::string> TargetOf(std::string_view id) {
    MSPROBE_ASSIGN_OR_RETURN(const ZipContent links, Part("xl/_rels/workbook.xml.rels"));
    XmlCursor xml(links.bytes);
    while (xml.Next()) {
      if (xml.kind() != XmlCursor::kOpen || xml.name() != "Relationship") continue;
      if (xml.Attribute("Id") != id) continue;
      const std::string target(xml.Attribute("Target"));
      return target.starts_with('/') ? target.substr(1) : "xl/" + target;
    }
    if (xml.failed()) return xml.Error(path_ + ": xl/_rels/workbook.xml.rels");
    return InvalidDump(path_)
        .Expected("a part for each sheet"_t)
        .Found("none for {}"_t(Excerpt(id)));
  }

  Status ReadStrings() {
    constexpr std::string_view kName = "xl/sharedStrings.xml";
    if (zip_.Find(kName) == nullptr) return Status::Ok();
    MSPROBE_ASSIGN_OR_RETURN(const ZipContent part, Part(kName));
    XmlCursor xml(part.bytes);
    bool inside = false;  // of <t>
    int phonetic = 0;     // depth of <rPh>: how to read a text aloud
    while (xml.Next()) {
      const bool open = xml.kind() == XmlCursor::kOpen;
      if (xml.kind() == XmlCursor::kText) {
        if (inside && phonetic == 0 && !strings_.empty()) xml.AppendText(&strings_.back());
      } else if (xml.name() == "si") {
        if (open) {
          strings_.emplace_back();
        } else if (!strings_.empty()) {
          DecodeControls(&strings_.back());
        }
      } else if (xml.name() == "rPh") {
        phonetic += open ? 1 : -1;
      } else if (xml.name() == "t") {
        inside = open;
      }
    }
    return xml.failed() ? xml.Error(path_ + ": xl/sharedStrings.xml") : Status::Ok();
  }

  struct Cell {
    int64_t column = 0;
    std::string type, text;
  };

  // The row being read, and its cell.
  struct Row {
    uint64_t number = 0, cells_before = 0;  // cells of the rows above
    std::vector<std::string> texts;         // the first `used`
    size_t used = 0;
    Cell cell;
    bool in_cell = false, in_value = false;
    int phonetic = 0;

    bool TakesText() const { return in_cell && in_value && phonetic == 0; }

    Status Begin(const std::string& place, std::string_view reference) {
      uint64_t given = number + 1;
      if (!reference.empty() && !ParseNumber(reference, &given)) {
        return InvalidDump(place).Expected("the number of a row"_t).Found(Excerpt(reference));
      }
      number = given;
      used = 0;
      cell.column = -1;
      in_cell = false;
      return Status::Ok();
    }

    Status BeginCell(const std::string& place, XmlCursor& xml) {
      const std::string_view reference = xml.Attribute("r");
      cell.column = reference.empty() ? cell.column + 1 : ColumnOf(reference);
      if (cell.column < 0 || cell.column >= static_cast<int64_t>(kMaxXlsxColumns)) {
        return InvalidDump(place)
            .Expected("a column from A to XFD"_t)
            .Found(Excerpt(xml.Attribute("r")));
      }
      cell.type = xml.Attribute("t");
      cell.text.clear();
      in_cell = true;
      return Status::Ok();
    }

    void Keep() {
      const auto needed = static_cast<size_t>(cell.column) + 1;
      if (texts.size() < needed) texts.resize(needed);
      for (; used < needed; ++used) texts[used].clear();
      texts[needed - 1] = cell.text;
    }
  };

  Status ReadSheet(std::string_view sheet, const std::string& part, const TableSink& sink,
                   bool* stopped) {
    const std::string place = path_ + ": " + part;
    MSPROBE_ASSIGN_OR_RETURN(const ZipContent content, Part(part));
    XmlCursor xml(content.bytes);
    std::vector<std::string_view> cells;
    Row row;
    Status status = Status::Ok();
    while (status.ok() && !*stopped && xml.Next()) {
      const bool open = xml.kind() == XmlCursor::kOpen;
      if (xml.kind() == XmlCursor::kText) {
        if (row.TakesText()) xml.AppendText(&row.cell.text);
      } else if (xml.name() == "row") {
        status = open ? row.Begin(place, xml.Attribute("r"))
                      : FinishRow(place, sheet, sink, &row, &cells, stopped);
      } else if (xml.name() == "c") {
        status = open ? row.BeginCell(place, xml) : FinishCell(place, &row);
      } else if (xml.name() == "rPh") {
        row.phonetic += open ? 1 : -1;
      } else if (xml.name() == "v" || xml.name() == "t") {
        row.in_value = open;
      }
    }
    if (!status.ok() || *stopped) return status;
    return xml.failed() ? xml.Error(place) : Status::Ok();
  }

  // Gives the row to the sink; `cells` is memory for it.
  Status FinishRow(const std::string& place, std::string_view sheet, const TableSink& sink,
                   Row* row, std::vector<std::string_view>* cells, bool* stopped) {
    cells->assign(row->texts.begin(), row->texts.begin() + static_cast<long>(row->used));
    row->cells_before += row->used;
    if (row->cells_before > kMaxCells)
      return InvalidDump(place).Says("more than 536870912 cells"_t);
    row->used = 0;
    *stopped = !cells->empty() && !sink({sheet, row->number, *cells});
    return Status::Ok();
  }

  Status FinishCell(const std::string& place, Row* row) {
    if (!row->in_cell) {
      return InvalidDump(place).Expected("<c> before </c>, in one row"_t).Found("none"_t);
    }
    row->in_cell = false;
    MSPROBE_RETURN_IF_ERROR(Finish(place, &row->cell));
    row->Keep();
    return Status::Ok();
  }

  Status Finish(const std::string& place, Cell* cell) {
    if (cell->type == "s") {
      size_t index = 0;
      if (!ParseNumber(std::string_view(cell->text), &index) || index >= strings_.size()) {
        return InvalidDump(place)
            .Expected("one of {} shared texts"_t(strings_.size()))
            .Found(Excerpt(cell->text));
      }
      cell->text = strings_[index];
    } else if (cell->type == "b") {
      cell->text = cell->text == "1" ? "TRUE" : "FALSE";
    } else if (cell->type == "inlineStr" || cell->type == "str") {
      DecodeControls(&cell->text);
    }
    return Status::Ok();
  }

  ZipReader zip_;
  const std::string& path_;
  std::deque<std::string> strings_;
};

}  // namespace

Status ReadXlsx(std::string_view archive, const std::string& path, const TableSink& sink) {
  MSPROBE_ASSIGN_OR_RETURN(ZipReader zip, ZipReader::Open(archive, path));
  return Book(std::move(zip), path).Read(sink);
}

}  // namespace msprobe::formats
