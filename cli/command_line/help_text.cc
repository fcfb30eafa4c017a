#include "cli/command_line/help_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/compare/report/text_layout.h"

namespace msprobe::cli {
namespace {

constexpr int kTextColumn = 28;

// "table|json|csv", or what the flag says when there are too many choices for a name.
std::string ValueOf(const FlagInfo& flag) {
  constexpr size_t kMostColumns = 24;
  const std::string choices = fmt::format("{}", fmt::join(flag.choices, "|"));
  return choices.empty() || choices.size() > kMostColumns ? flag.value : choices;
}

// "TARGET, -tp, --target_path PATH"
std::string Spelling(const FlagInfo& flag) {
  const std::string value = ValueOf(flag), names = fmt::format("{}", fmt::join(flag.names, ", "));
  std::string text = flag.place;
  if (!names.empty()) text += (text.empty() ? "" : ", ") + names;
  if (flag.place.empty() ? !value.empty() : !names.empty()) text += " " + value;
  return text;
}

std::string Explanation(const FlagInfo& flag) {
  std::string text = flag.help.Shown();
  const std::string shown =
      flag.shown_default.empty() ? "" : "default: {}"_t(flag.shown_default).Shown();
  if (!flag.choices.empty() && ValueOf(flag) == flag.value) {
    text +=
        fmt::format(" ({}{}{})", fmt::join(flag.choices, ", "), shown.empty() ? "" : "; ", shown);
  } else if (!shown.empty()) {
    text += fmt::format(" ({})", shown);
  }
  if (flag.required && flag.place.empty()) text += " (" + "required"_t.Shown() + ")";
  return text;
}

void AppendFlag(const FlagInfo& flag, int width, std::string* out) {
  const std::string spelling = "  " + Spelling(flag);
  const bool beside = compare::Columns(spelling) <= kTextColumn - 2;
  *out += beside ? compare::Pad(spelling, kTextColumn) : spelling + "\n";
  bool first = beside;
  for (const std::string& line : compare::WrapWords(Explanation(flag), width - kTextColumn)) {
    *out += (first ? "" : std::string(kTextColumn, ' ')) + line + "\n";
    first = false;
  }
}

std::string Usage(const HelpPage& page) {
  if (!page.usage.empty()) return page.usage;
  std::string text;
  bool more = false;
  for (const FlagInfo& flag : page.flags) {
    if (flag.place.empty()) {
      more = true;
      if (flag.required) text += fmt::format(" {} {}", flag.names.front(), flag.value);
    } else {
      text += flag.required ? " " + flag.place : fmt::format(" [{}]", flag.place);
    }
  }
  return text.substr(text.empty() ? 0 : 1) + (more ? (text.empty() ? "[FLAGS]" : " [FLAGS]") : "");
}

}  // namespace

std::string HelpText(const HelpPage& page, bool all, int width) {
  const bool chosen = std::any_of(page.flags.begin(), page.flags.end(),
                                  [](const FlagInfo& flag) { return flag.common; });
  std::string out = page.summary.Shown() + "\n\n";
  out += fmt::format("{}: {} {}", "usage"_t.Shown(), page.program, Usage(page));
  while (out.ends_with(' ')) out.pop_back();
  out += '\n';
  const FlagInfo* before = nullptr;
  size_t hidden = 0;
  for (const FlagInfo& flag : page.flags) {
    if (chosen && !all && !flag.common) {
      ++hidden;
      continue;
    }
    if (before == nullptr || !(before->group == flag.group)) {
      out += flag.group.empty() ? "\n" : fmt::format("\n{}:\n", flag.group.Shown());
    }
    AppendFlag(flag, width, &out);
    before = &flag;
  }
  if (!page.footer.empty()) out += "\n" + page.footer.Shown() + "\n";
  if (hidden > 0) {
    out += "\n" + "{} --help-all lists all {} flags."_t(page.program, page.flags.size()).Shown() +
           "\n";
  }
  return out;
}

}  // namespace msprobe::cli
