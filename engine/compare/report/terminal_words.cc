#include "engine/compare/report/terminal_words.h"

#include <algorithm>

#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {

std::string_view ColorOf(RunVerdict verdict) {
  static constexpr std::string_view kColors[] = {kGreen, kGreen, kYellow, kYellow, kRed};
  return kColors[static_cast<int>(verdict)];
}

Message Headline(RunVerdict verdict) {
  switch (verdict) {
    case RunVerdict::kEqual:
      return "EQUAL"_t;
    case RunVerdict::kNoise:
      return "WITHIN ROUNDING"_t;
    case RunVerdict::kStructure:
      return "VALUES AGREE, STRUCTURE DIFFERS"_t;
    case RunVerdict::kDiffers:
      return "DIFFERS"_t;
    case RunVerdict::kUnknown:
      break;
  }
  return "UNKNOWN"_t;
}

Message Legend(std::string_view report) {
  const Message words[][2] = {{"introduced"_t, "introduced: inputs agree, an output does not"_t},
                              {"inherited"_t, "inherited: an input is already wrong"_t},
                              {"rounding"_t, "rounding: the dtype's error in one operation"_t}};
  std::vector<Message> meanings;
  for (const auto& [word, meaning] : words) {
    if (report.find(word.Shown()) != report.npos) meanings.push_back(meaning);
  }
  return Message::Joined(std::move(meanings), "; ");
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
  if (!f.module.empty()) add(SourceLines("in {}"_t(Clean(f.module)).Shown(), width, whole));
  add(SourceLines(Clean(f.source_line), width, whole));
  if (!f.caller_line.empty())
    add(SourceLines("called from {}"_t(Clean(f.caller_line)).Shown(), width, whole));
  if (!f.golden_line.empty())
    add(SourceLines("in the golden: {}"_t(Clean(f.golden_line)).Shown(), width, whole));
  return lines;
}

}  // namespace msprobe::compare
