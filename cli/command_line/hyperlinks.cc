#include "cli/command_line/hyperlinks.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "engine/base/file.h"

namespace msprobe::cli {
namespace {

bool IsPathCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/' || c == '-' || c == '+' || static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "file:///home/me/a%20b.py"; "" when there is no such file.
std::string UrlOf(std::string_view path) {
  if (!IsRegularFile(std::string(path))) return "";
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) return "";
  std::string url = "file://";
  for (const char c : whole.string()) {
    const bool plain = IsPathCharacter(c) && static_cast<unsigned char>(c) < 0x80;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return url;
}

}  // namespace

std::string LinkPlaces(std::string_view text) {
  constexpr std::string_view kPython = ".py:";
  std::string out;
  size_t done = 0;
  for (size_t at = 0; (at = text.find(kPython, at)) != text.npos; at += kPython.size()) {
    size_t begin = at, end = at + kPython.size();
    while (begin > done && IsPathCharacter(text[begin - 1])) --begin;
    while (end < text.size() && IsDigit(text[end])) ++end;
    if (end == at + kPython.size() || begin == at) continue;
    const std::string_view path = text.substr(begin, at + kPython.size() - 1 - begin);
    const std::string url = UrlOf(path);
    if (url.empty()) continue;
    out += text.substr(done, begin - done);
    const std::string_view line = text.substr(at + kPython.size(), end - at - kPython.size());
    out += fmt::format("\x1b]8;;{}#{}\x1b\\{}\x1b]8;;\x1b\\", url, line,
                       text.substr(begin, end - begin));
    done = end;
  }
  out += text.substr(done);
  return out;
}

std::string CutPlace(std::string_view text, size_t width) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= width || width <= kDots.size()) return std::string(text);
  size_t begin = text.size() - (width - kDots.size());
  // At a whole part, where one begins soon; never inside of a UTF-8 character.
  const size_t part = text.find_first_of("/.", begin);
  if (part != text.npos && part < begin + width / 3 && part + 1 < text.size())
    begin = part + (text[part] == '/' ? 1 : 0);
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) ++begin;
  return std::string(kDots) + std::string(text.substr(begin));
}

}  // namespace msprobe::cli
