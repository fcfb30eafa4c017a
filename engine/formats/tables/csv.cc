#include "engine/formats/tables/csv.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/atomic_file.h"
#include "engine/base/text.h"

namespace msprobe::formats {
namespace {

bool LooksLikeFormula(std::string_view text) {
  if (text.empty()) return false;
  switch (text[0]) {
    case '=':
    case '+':
    case '-':
    case '@':
    case '\t':
    case '\r':
      return true;
    case '\xef': {  // full-width forms, which spreadsheets in East Asian locales take for the plain
                    // ones
      const std::string_view first = text.substr(0, 3);
      return first == "\uff1d" || first == "\uff0b" || first == "\uff0d" || first == "\uff20";
    }
    default:
      return false;
  }
}

constexpr unsigned char kSeparators = 1, kQuotes = 2, kBeyondAscii = 0x80;

// Which kinds of character the end of `text` has. The loop takes 16 bytes at a time, which the
// compiler turns into vector instructions.
unsigned char KindsOfCharacters(TextBuffer* text, size_t start) {
  std::memset(text->data() + text->size(), 0, 16);
  unsigned char kinds = 0;
  for (size_t at = start; at < text->size(); at += 16) {
    const char* const block = text->data() + at;
    unsigned char of_block[16];
    for (int i = 0; i < 16; ++i) {
      const char c = block[i];
      of_block[i] = static_cast<unsigned char>(
          ((c == ',') | (c == '\n') | (c == '\r') ? kSeparators : 0) | (c == '"' ? kQuotes : 0) |
          (static_cast<unsigned char>(c) & kBeyondAscii));
    }
    for (int i = 0; i < 16; ++i) kinds |= of_block[i];
  }
  return kinds;
}

}  // namespace

void QuoteCsvCell(TextBuffer* text, size_t start, bool guard) {
  if (text->size() == start) return;
  const unsigned char kinds = KindsOfCharacters(text, start);
  const bool formula = guard && LooksLikeFormula(text->view().substr(start));
  if (kinds == 0 && !formula) return;
  if (kinds == kSeparators && !formula) {
    *text += '"';
    *text += '"';
    std::memmove(text->data() + start + 1, text->data() + start, text->size() - start - 2);
    text->data()[start] = '"';
    return;
  }
  CsvWriter cell;
  guard ? cell.TextCell(text->view().substr(start)) : cell.NumberCell(text->view().substr(start));
  text->Truncate(start);
  *text += cell.text();
}

void CsvWriter::Separate() {
  if (cells_++ > 0) text_ += ',';
}

void CsvWriter::AppendQuoted(std::string_view text, bool guard) {
  // What makes a cell need quotes: as in Python's csv module with lineterminator "\n", and the
  // carriage return, which newer versions of it quote as well. (Bytes, not bools: the compiler
  // looks at many at a time.)
  unsigned char quote = 0, high = 0;
  for (const char c : text) {
    quote |= static_cast<unsigned char>((c == ',') | (c == '"') | (c == '\n') | (c == '\r'));
    high |= static_cast<unsigned char>(c);
  }
  std::string valid;
  if (high >= 0x80) {
    AppendValidUtf8(&valid, text);
    text = valid;
    // At the start of a file, readers would take it for the byte order mark.
    quote |= static_cast<unsigned char>(text.starts_with("\xef\xbb\xbf"));
  }
  if (!quote) {
    if (guard) text_ += '\'';
    text_ += text;
    return;
  }
  text_ += '"';
  if (guard) text_ += '\'';
  for (size_t at; (at = text.find('"')) != std::string_view::npos; text.remove_prefix(at + 1)) {
    text_ += text.substr(0, at + 1);
    text_ += '"';
  }
  text_ += text;
  text_ += '"';
}

void CsvWriter::TextCell(std::string_view text) {
  Separate();
  AppendQuoted(text, LooksLikeFormula(text));
}

void CsvWriter::NumberCell(std::string_view text) {
  Separate();
  AppendQuoted(text, false);
}

void CsvWriter::NumberCell(double value) {
  Separate();
  if (std::isfinite(value)) {
    AppendPythonFloat(&text_, value);
  } else {
    text_ += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
}

void CsvWriter::IntegerCell(int64_t value) {
  Separate();
  AppendInteger(&text_, value);
}

void CsvWriter::EndRow() {
  // A row of one empty cell would read back as no row at all.
  if (cells_ == 1 && text_.size() == row_start_) text_ += "\"\"";
  text_ += '\n';
  cells_ = 0;
  row_start_ = text_.size();
}

void CsvWriter::Clear() {
  text_.clear();
  cells_ = 0;
  row_start_ = 0;
}

Status WriteCsv(const std::string& path, std::span<const CsvWriter> parts) {
  std::vector<std::string_view> pieces;
  for (const CsvWriter& part : parts) pieces.push_back(part.text());
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_RETURN_IF_ERROR(file.Write(pieces));
  return file.Commit();
}

}  // namespace msprobe::formats
