#include "engine/formats/tables/table_file.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "engine/base/file.h"

namespace msprobe::formats {
namespace {

constexpr size_t kMaxColumns = 1u << 16;  // a line of commas must not take all memory

}  // namespace

Status ReadCsv(std::string_view text, const std::string& path, const TableSink& sink) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::vector<std::string_view> cells;
  std::deque<std::string> unquoted;  // of this row: cells with doubled quotes
  uint64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    cells.clear();
    unquoted.clear();
    ++number;
    while (true) {  // one cell a round
      if (cells.size() == kMaxColumns) {
        return InvalidDump(path, at).Expected("at most 65536 columns"_t).Found("more"_t);
      }
      if (at < text.size() && text[at] == '"') {
        const size_t start = ++at;
        size_t end = text.find('"', at);
        bool doubled = false;
        while (end != text.npos && end + 1 < text.size() && text[end + 1] == '"') {
          doubled = true;
          end = text.find('"', end + 2);
        }
        if (end == text.npos) {
          return InvalidDump(path, start - 1)
              .Expected("the closing quote of this cell"_t)
              .Found("the end of the file"_t);
        }
        std::string_view cell = text.substr(start, end - start);
        if (doubled) {
          std::string& clean = unquoted.emplace_back();
          for (size_t i = 0; i < cell.size(); ++i) {
            clean += cell[i];
            if (cell[i] == '"') ++i;
          }
          cell = clean;
        }
        cells.push_back(cell);
        at = end + 1;
        if (at < text.size() && text[at] != ',' && text[at] != '\n' && text[at] != '\r') {
          return InvalidDump(path, at)
              .Expected("a comma or the end of the line after a quoted cell"_t)
              .Found(Excerpt(text.substr(at, 20)));
        }
      } else {
        // Cells are short: a loop is faster than find_first_of, which calls memchr for each
        // character.
        size_t end = at;
        while (end < text.size() && text[end] != ',' && text[end] != '\n' && text[end] != '\r')
          ++end;
        cells.push_back(text.substr(at, end - at));
        at = end;
      }
      if (at >= text.size() || text[at] != ',') break;
      ++at;
    }
    if (at < text.size() && text[at] == '\r') ++at;
    if (at < text.size() && text[at] == '\n') ++at;
    const bool blank = cells.size() == 1 && cells[0].empty();
    if (!blank && !sink({"", number, cells})) break;
  }
  return Status::Ok();
}

Status ReadTableFile(const std::string& path, const TableSink& sink) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return file.bytes().starts_with("PK\x03\x04") ? ReadXlsx(file.bytes(), path, sink)
                                                : ReadCsv(file.bytes(), path, sink);
}

}  // namespace msprobe::formats
