#include "engine/compare/report/report_terminal.h"

#include "engine/base/messages/message.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/findings_screen.h"

namespace msprobe::compare {

std::string TerminalReport(const Comparison& comparison, const TerminalOptions& options) {
  return TerminalReport(FindingsOf(comparison), options);
}

std::string TerminalReport(const Findings& found, const TerminalOptions& options) {
  using Lines = FindingsScreen::Lines;
  const FindingsScreen screen(found, options);
  Lines lines = TitleLines("msprobe compare, by {}"_t(WordOf(found.mode)), found.summary, options);
  Lines foot{""};
  const auto append = [](const Lines& more, Lines* to) {
    to->insert(to->end(), more.begin(), more.end());
  };
  append(screen.Sides(), &lines);
  append(screen.Began(), &lines);
  lines.emplace_back();
  append(screen.Finding(), &lines);
  append(screen.Footer(), &foot);
  append(screen.LegendOf({&lines, &foot}), &foot);
  append(screen.Table(options.lines - static_cast<int>(lines.size() + foot.size())), &lines);
  append(foot, &lines);
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

}  // namespace msprobe::compare
