#include "engine/formats/csv.h"

#include <cmath>
#include <vector>

#include "engine/base/text.h"
#include "engine/formats/atomic_file.h"

namespace msprobe {
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

}  // namespace

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

}  // namespace msprobe
