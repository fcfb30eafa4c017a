#include "engine/formats/tables/table_file.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "engine/base/file.h"

namespace msprobe::formats {
namespace {

constexpr size_t kMaxColumns = 1u << 16;  // a line of commas must not take all memory

// A cell in quotes without the second of two quotes that follow each other.
std::string WithoutDoubling(std::string_view cell) {
  std::string clean;
  for (size_t i = 0; i < cell.size(); ++i) {
    clean += cell[i];
    if (cell[i] == '"') ++i;
  }
  return clean;
}

// Reads the rows of a text one after another.
class CsvRows {
 public:
  CsvRows(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  bool done() const { return at_ >= text_.size(); }
  // Valid until the next row.
  const std::vector<std::string_view>& cells() const { return cells_; }

  Status Next() {
    cells_.clear();
    unquoted_.clear();
    while (true) {  // one cell a round
      if (cells_.size() == kMaxColumns) {
        return InvalidDump(path_, at_).Expected("at most 65536 columns"_t).Found("more"_t);
      }
      if (At('"')) {
        MSPROBE_RETURN_IF_ERROR(QuotedCell());
      } else {
        PlainCell();
      }
      if (!At(',')) break;
      ++at_;
    }
    if (At('\r')) ++at_;
    if (At('\n')) ++at_;
    return Status::Ok();
  }

 private:
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool AtEndOfCell() const { return done() || At(',') || At('\n') || At('\r'); }

  // Cells are short: a loop is faster than find_first_of, which calls memchr for each character.
  void PlainCell() {
    size_t end = at_;
    while (end < text_.size() && text_[end] != ',' && text_[end] != '\n' && text_[end] != '\r')
      ++end;
    cells_.push_back(text_.substr(at_, end - at_));
    at_ = end;
  }

  Status QuotedCell() {
    const size_t start = ++at_;
    size_t end = text_.find('"', at_);
    bool doubled = false;
    while (end != text_.npos && end + 1 < text_.size() && text_[end + 1] == '"') {
      doubled = true;
      end = text_.find('"', end + 2);
    }
    if (end == text_.npos) {
      return InvalidDump(path_, start - 1)
          .Expected("the closing quote of this cell"_t)
          .Found("the end of the file"_t);
    }
    const std::string_view cell = text_.substr(start, end - start);
    cells_.push_back(doubled ? unquoted_.emplace_back(WithoutDoubling(cell)) : cell);
    at_ = end + 1;
    if (!AtEndOfCell()) {
      return InvalidDump(path_, at_)
          .Expected("a comma or the end of the line after a quoted cell"_t)
          .Found(Excerpt(text_.substr(at_, 20)));
    }
    return Status::Ok();
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
  std::vector<std::string_view> cells_;
  std::deque<std::string> unquoted_;  // of this row: cells with doubled quotes
};

}  // namespace

Status ReadCsv(std::string_view text, const std::string& path, const TableSink& sink) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  CsvRows rows(text, path);
  for (uint64_t number = 1; !rows.done(); ++number) {
    MSPROBE_RETURN_IF_ERROR(rows.Next());
    const bool blank = rows.cells().size() == 1 && rows.cells()[0].empty();
    if (!blank && !sink({"", number, rows.cells()})) break;
  }
  return Status::Ok();
}

Status ReadTableFile(const std::string& path, const TableSink& sink) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return file.bytes().starts_with("PK\x03\x04") ? ReadXlsx(file.bytes(), path, sink)
                                                : ReadCsv(file.bytes(), path, sink);
}

}  // namespace msprobe::formats
