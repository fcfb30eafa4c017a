#include "engine/compare/report/terminal_words.h"

#include <algorithm>

#include "engine/base/language.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {

std::string_view ColorOf(RunVerdict verdict) {
  static constexpr std::string_view kColors[] = {kGreen, kGreen, kYellow, kYellow, kRed};
  return kColors[static_cast<int>(verdict)];
}

std::string_view Headline(RunVerdict verdict) {
  static constexpr std::string_view kHeadlines[] = {
      "EQUAL", "WITHIN ROUNDING", "VALUES AGREE, STRUCTURE DIFFERS", "UNKNOWN", "DIFFERS"};
  return kHeadlines[static_cast<int>(verdict)];
}

std::string Legend(std::string_view report) {
  constexpr std::string_view kWords[][2] = {
      {"introduced", "introduced: inputs agree, an output does not"},
      {"inherited", "inherited: an input is already wrong"},
      {"rounding", "rounding: the dtype's error in one operation"}};
  std::string text;
  for (const auto& [word, meaning] : kWords) {
    if (report.find(Translated(std::string(word))) != report.npos)
      text += (text.empty() ? "" : "; ") + std::string(meaning);
  }
  return text;
}

std::vector<std::string> SourceLines(std::string_view source, int width, bool whole) {
  if (whole) return WrapWords(source, width);
  const size_t in = source.find(" in ");
  const size_t code = in == source.npos ? source.npos : source.find(": ", in);
  const size_t place_lines = Wrap(source.substr(0, std::min(code, source.size())), width).size();
  return Wrap(source, width, place_lines + 1);
}

std::vector<std::string> PlaceLines(const FirstDivergence& f, int width, bool whole) {
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (!f.module.empty()) add(SourceLines(TranslatedAround("in {}", Clean(f.module)), width, whole));
  add(SourceLines(Clean(f.source_line), width, whole));
  if (!f.caller_line.empty())
    add(SourceLines(TranslatedAround("called from {}", Clean(f.caller_line)), width, whole));
  if (!f.golden_line.empty())
    add(SourceLines(TranslatedAround("in the golden: {}", Clean(f.golden_line)), width, whole));
  return lines;
}

}  // namespace msprobe::compare
