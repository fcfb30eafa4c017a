// Rows of a sheet as XML, and compressed so that pieces can be joined.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tables/xlsx_text.h"

namespace msprobe::formats {
namespace {

constexpr int kLevel = 1;  // sheets repeat themselves: more effort hardly makes them smaller

// "A", "Z", "AA": letters of a column's number from 0.
size_t ColumnLetters(size_t column, char* out) {
  char reversed[4];
  size_t n = 0;
  for (size_t left = column + 1; left > 0; left = (left - 1) / 26) {
    reversed[n++] = static_cast<char>('A' + (left - 1) % 26);
  }
  for (size_t i = 0; i < n; ++i) out[i] = reversed[n - 1 - i];
  return n;
}

bool IsPlainNumber(std::string_view text) {
  constexpr size_t kDigits = 15;  // that a cell holds
  if (text.empty() || (text.size() > kDigits && text.find_first_of(".eE") == text.npos)) {
    return false;
  }
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && std::isfinite(number);
}

}  // namespace

void XlsxRows::Start(uint32_t first_row) {
  row_ = first_row;
  column_ = columns_ = 0;
  xml_.clear();
  deflated_.clear();
}

void XlsxRows::BeginRow(RowColor color) {
  color_ = color;
  column_ = 0;
  xml_ += "<row r=\"";
  AppendUnsigned(&xml_, row_);
  xml_ += "\">";
}

void XlsxRows::EndRow() {
  xml_ += "</row>";
  ++row_;
  columns_ = std::max(columns_, column_);
}

// "<c r="B5" s="2"", the caller closes it.
void XlsxRows::BeginCell() {
  char letters[4];
  xml_ += "<c r=\"";
  xml_.append(letters, ColumnLetters(column_++, letters));
  AppendUnsigned(&xml_, row_);
  xml_ += '"';
  if (color_ != RowColor::kNone) {
    xml_ += " s=\"";
    AppendUnsigned(&xml_, static_cast<uint64_t>(color_));
    xml_ += '"';
  }
}

void XlsxRows::TextCell(std::string_view text) {
  if (text.empty() && color_ == RowColor::kNone) {
    ++column_;
    return;
  }
  BeginCell();
  if (text.empty()) {
    xml_ += "/>";
    return;
  }
  AssignXlsxText(text, kMaxXlsxCharacters, &clean_);
  xml_ += clean_.front() <= ' ' || clean_.back() <= ' '
              ? " t=\"inlineStr\"><is><t xml:space=\"preserve\">"
              : " t=\"inlineStr\"><is><t>";
  AppendXmlText(&xml_, clean_);
  xml_ += "</t></is></c>";
}

void XlsxRows::NumberCell(double value) {
  if (!std::isfinite(value)) {
    return TextCell(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
  BeginCell();
  xml_ += "><v>";
  AppendPythonFloat(&xml_, value);
  if (xml_.ends_with(".0")) xml_.resize(xml_.size() - 2);
  xml_ += "</v></c>";
}

void XlsxRows::SpelledCell(std::string_view text) {
  if (!IsPlainNumber(text)) return TextCell(text);
  BeginCell();
  xml_ += "><v>";
  xml_ += text;
  xml_ += "</v></c>";
}

void XlsxRows::Compress() {
  z_stream stream{};
  // Raw deflate; the flush at the end closes a block at a byte's border, and the next piece
  // follows.
  (void)deflateInit2(&stream, kLevel, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY);
  deflated_.resize(deflateBound(&stream, xml_.size()) + 16);
  size_t taken = 0, made = 0;
  constexpr size_t kMost = 1u << 30;  // of zlib's counters
  while (true) {
    const size_t in = std::min(kMost, xml_.size() - taken);
    if (made == deflated_.size()) deflated_.resize(2 * made);
    const size_t out = std::min(kMost, deflated_.size() - made);
    stream.next_in = reinterpret_cast<const Bytef*>(xml_.data()) + taken;
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(deflated_.data()) + made;
    stream.avail_out = static_cast<uInt>(out);
    const bool last = taken + in == xml_.size();
    (void)deflate(&stream, last ? Z_SYNC_FLUSH : Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
    if (last && stream.avail_in == 0 && stream.avail_out > 0) break;
  }
  (void)deflateEnd(&stream);
  deflated_.resize(made);
  crc32_ = Crc32(xml_);
}

}  // namespace msprobe::formats
