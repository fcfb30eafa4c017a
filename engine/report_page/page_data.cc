#include "engine/report_page/page_data.h"

#include <fmt/format.h>
#include <libdeflate.h>

#include <memory>

#include "engine/base/messages/language.h"
#include "engine/base/text.h"

namespace msprobe::report_page {

namespace {

void AppendBase64(std::string_view bytes, std::string* out) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t begin = out->size();
  out->resize(begin + (bytes.size() + 2) / 3 * 4, '=');
  char* to = out->data() + begin;
  const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 3; left -= 3, from += 3) {
    const uint32_t three = static_cast<uint32_t>(from[0] << 16 | from[1] << 8 | from[2]);
    for (const int shift : {18, 12, 6, 0}) *to++ = kLetters[three >> shift & 63];
  }
  if (left > 0) {
    const uint32_t rest = static_cast<uint32_t>(from[0] << 16 | (left == 2 ? from[1] << 8 : 0));
    *to++ = kLetters[rest >> 18];
    *to++ = kLetters[rest >> 12 & 63];
    if (left == 2) *to++ = kLetters[rest >> 6 & 63];
  }
}

}  // namespace

std::string Base64(std::string_view bytes) {
  std::string out;
  AppendBase64(bytes, &out);
  return out;
}

std::string Gzip(std::string_view bytes) {
  constexpr int kLevel = 6;  // 2 s for a page of a million calls; level 9 is 1% smaller
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kLevel), &libdeflate_free_compressor);
  std::string out(libdeflate_gzip_compress_bound(compressor.get(), bytes.size()), '\0');
  out.resize(libdeflate_gzip_compress(compressor.get(), bytes.data(), bytes.size(), out.data(),
                                      out.size()));
  return out;
}

std::string ByteColumns(std::string_view numbers, size_t width) {
  if (width == 1) return std::string(numbers);
  const size_t count = numbers.size() / width;
  std::string out(numbers.size(), '\0');
  for (size_t byte = 0; byte < width; ++byte) {
    for (size_t i = 0; i < count; ++i) out[byte * count + i] = numbers[i * width + byte];
  }
  return out;
}

void AppendElement(std::string_view id, std::string_view type, size_t size, std::string_view packed,
                   PageText* html) {
  constexpr std::string_view kEnd = "</script>\n";
  const std::string begin = fmt::format(
      "<script type=\"text/plain\" id=\"{}\" data-type=\"{}\" data-size=\"{}\">", id, type, size);
  std::string& piece = html->emplace_back();
  piece.reserve(begin.size() + (packed.size() + 2) / 3 * 4 + kEnd.size());
  piece += begin;
  AppendBase64(packed, &piece);
  piece += kEnd;
}

void AppendText(std::string_view id, std::string_view text, PageText* html) {
  AppendElement(id, "text", text.size(), Gzip(text), html);
}

namespace {

// Marks of Unicode that reorder the text after them: U+200E, U+200F, U+202A to U+202E, U+2066 to
// U+2069.
bool ReordersText(std::string_view valid, size_t at) {
  if (valid.substr(at, 2) == "\xe2\x80") {
    const auto last = static_cast<uint8_t>(valid[at + 2]);
    return last == 0x8e || last == 0x8f || (last >= 0xaa && last <= 0xae);
  }
  if (valid.substr(at, 2) != "\xe2\x81") return false;
  const auto last = static_cast<uint8_t>(valid[at + 2]);
  return last >= 0xa6 && last <= 0xa9;
}

}  // namespace

void AppendMessage(const Message& text, std::string* json) {
  const std::string english = text.English(), chinese = text.In(Language::kChinese);
  if (english == chinese) return AppendJsonString(json, english);
  *json += '[';
  AppendJsonString(json, english);
  *json += ',';
  AppendJsonString(json, chinese);
  *json += ']';
}

std::string HtmlText(std::string_view text, size_t most) {
  std::string valid;
  if (text.size() > most) {
    AppendValidUtf8(&valid, text.substr(0, most / 2));
    valid += fmt::format(" ... {} characters ... ", text.size() - most);
    AppendValidUtf8(&valid, text.substr(text.size() - most / 2));
  } else {
    AppendValidUtf8(&valid, text);
  }
  std::string out;
  for (size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      out += ' ';
    } else if (ReordersText(valid, i)) {
      out += "\xef\xbf\xbd";  // U+FFFD
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace msprobe::report_page
