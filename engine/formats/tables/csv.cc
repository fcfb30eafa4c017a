#include "engine/formats/tables/csv.h"

#include <cmath>
#include <cstdint>
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

// 16 characters; operators work on all of them at once. (Of loops over 16 characters, compilers
// made single instructions for each.)
using Block = unsigned char __attribute__((vector_size(16)));

// Which kinds of character the end of `text` has.
unsigned char KindsOfCharacters(TextBuffer* text, size_t start) {
  std::memset(text->data() + text->size(), 0, sizeof(Block));
  Block kinds{};
  for (size_t at = start; at < text->size(); at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, text->data() + at, sizeof block);
    const auto separators = (block == ',') | (block == '\n') | (block == '\r');
    kinds |= (reinterpret_cast<Block>(separators) & kSeparators) |
             (reinterpret_cast<Block>(block == '"') & kQuotes) | (block & kBeyondAscii);
  }
  uint64_t halves[2];
  std::memcpy(halves, &kinds, sizeof halves);
  uint64_t bits = halves[0] | halves[1];
  for (const int shift : {32, 16, 8}) bits |= bits >> shift;
  return static_cast<unsigned char>(bits);
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
