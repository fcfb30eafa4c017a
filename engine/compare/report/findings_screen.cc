#include "engine/compare/report/findings_screen.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "engine/base/language.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {
namespace {

using Lines = FindingsScreen::Lines;

constexpr std::string_view kTableTitle = "also differs";
constexpr std::string_view kMargin = "  | ";  // of the lines about a divergence

int WidthOf(const TerminalOptions& options) { return std::clamp(options.width, 60, 100); }

void Append(const Lines& more, Lines* lines) {
  lines->insert(lines->end(), more.begin(), more.end());
}

std::string_view Folder(std::string_view path) {
  return path.ends_with("/dump.json") ? path.substr(0, path.size() - 10) : path;
}

}  // namespace

Lines TitleLines(std::string_view english, const Summary& summary, const TerminalOptions& options) {
  const std::string title = Translated(std::string(english));
  const std::string headline = Translated(std::string(Headline(summary.verdict)));
  const std::string compared = Translated(DescribeCompared(summary));
  const int room = WidthOf(options) - Columns(title) - Columns(headline);
  const bool beside = !compared.empty() && room > Columns(compared) + 2;
  const std::string behind = beside ? Translated(", " + DescribeCompared(summary)) : "";
  Lines lines{fmt::format(
      "{}{}{}{}", title, std::string(std::max(1, room - Columns(behind)), ' '),
      options.colors ? fmt::format("{}{}{}", ColorOf(summary.verdict), headline, kReset) : headline,
      behind)};
  if (!compared.empty() && !beside)
    lines.push_back(std::string(WidthOf(options) - Columns(compared), ' ') + compared);
  return lines;
}

FindingsScreen::FindingsScreen(const Findings& found, const TerminalOptions& options)
    : f_(found),
      width_(WidthOf(options)),
      lines_(options.lines),
      colors_(options.colors),
      whole_(options.whole) {}

std::string FindingsScreen::Paint(std::string_view color, std::string_view text) const {
  return colors_ ? fmt::format("{}{}{}", color, text, kReset) : std::string(text);
}

Lines FindingsScreen::Fold(std::string_view english, int width) const {
  const std::string text = Translated(std::string(english));
  return whole_ ? WrapWords(text, width) : Wrap(text, width);
}

Lines FindingsScreen::Labelled(std::string_view label, std::string_view text) const {
  Lines lines;
  for (const std::string& line : Fold(text, width_ - Columns(label)))
    lines.push_back(Pad(lines.empty() ? label : "", Columns(label)) + line);
  return lines;
}

// Names are in all parts of a report, so the words are searched in the texts that are about calls.
// Chinese is folded within words: the lines are put together again.
Lines FindingsScreen::LegendOf(const std::vector<const Lines*>& parts) const {
  std::string text;
  for (const Lines* part : parts) {
    for (std::string_view line : *part) {
      if (line.starts_with(kMargin)) line.remove_prefix(kMargin.size());
      text += line;
    }
  }
  const std::string legend = Legend(text);
  return legend.empty() ? Lines() : Labelled(Pad(Translated("legend"), 9), legend);
}

Lines FindingsScreen::Sides() const {
  Lines lines;
  for (const bool target : {true, false}) {
    const Findings::Side& side = target ? f_.target_side : f_.golden_side;
    const std::string about = Translated(fmt::format(
        "{} calls, {} values{}{}", side.calls, side.values,
        side.dialect.empty() ? "" : ", " + side.dialect, side.complete ? "" : ", CUT SHORT"));
    const std::string path = Clean(Folder(side.dump));
    const int room = width_ - 10 - 2 - Columns(about);
    lines.push_back(fmt::format("  {}  {}  {}", Pad(Translated(target ? "target" : "golden"), 6),
                                Pad(whole_ ? path : CutMiddle(path, room), room), about));
  }
  return lines;
}

Lines FindingsScreen::Began() const {
  Lines lines;
  for (const LabelledText& condition : ConditionsOf(f_)) {
    Append(Labelled(fmt::format("  {}  ", Pad(Translated(std::string(condition.label)), 6)),
                    Clean(condition.text)),
           &lines);
  }
  return lines;
}

Lines FindingsScreen::Finding(const Place& place) const {
  Lines lines;
  const auto add = [&](std::string_view text) {
    for (const std::string& line : Fold(Clean(text), width_ - 4))
      lines.push_back(std::string(kMargin) + line);
  };
  if (f_.first.pair < 0) {
    lines = Fold(Translated(Clean(place.where)) + Translated(NoDivergence()), width_);
    if (!f_.first_bits.empty()) add(f_.first_bits);
    return lines;
  }
  const std::string title = Translated("FIRST DIVERGENCE") + "  ";
  const std::string sure = Translated(fmt::format("confidence {:.0f}%", 100 * f_.first.confidence));
  const int room = width_ - Columns(title) - Columns(sure) - 2;
  const std::string name = Translated(Clean(place.where + f_.first_name));
  const bool fits = Columns(name) <= room;
  lines.push_back(Paint(kRed, title) + Paint(kBold, Pad(fits ? name : "", room)) + "  " + sure);
  if (!fits) add(name);
  for (const std::string& line : PlaceLines(f_.first, width_ - 4, whole_))
    lines.push_back(std::string(kMargin) + line);
  if (!place.exchange.empty()) add(place.exchange);
  if (!f_.wrong_region.empty()) add("region: " + f_.wrong_region);
  add(f_.first.why);
  if (!f_.first_bits.empty()) add(f_.first_bits);
  for (const std::string& sentence : place.travelled) add(sentence);
  if (!f_.first.advice.empty()) add("next: " + f_.first.advice);
  return lines;
}

std::string FindingsScreen::OtherCalls() const {
  return fmt::format("All results agree, but the two runs did not make the same calls: {}.",
                     Clean(f_.other_arguments));
}

std::string FindingsScreen::OtherStructure() const {
  const Summary& s = f_.summary;
  const int64_t judged = s.rows[0] + s.rows[1] + s.rows[2];
  const int64_t alone = s.target_only_rows + s.golden_only_rows;
  const auto is = [](int64_t count) { return count == 1 ? "is" : "are"; };
  const auto plural = [](int64_t count) { return count == 1 ? "" : "s"; };
  std::string what;
  if (!f_.unmatched_calls.empty()) {
    what = Clean(f_.unmatched_calls) +
           (f_.two_frameworks ? "; each framework records calls that the other has not"
                              : "; their results lead to values that agree");
  } else if (alone > 0) {
    what = fmt::format("{} value{} of paired calls {} on one side only", alone, plural(alone),
                       is(alone));
  } else if (s.other_forms > 0) {
    const bool one = s.other_forms == 1;
    what = fmt::format("{} value{} of paired calls {} another form, and what {} to agrees",
                       s.other_forms, plural(s.other_forms), one ? "has" : "have",
                       one ? "it leads" : "they lead");
  } else if (s.compiled_calls > 0) {
    what = fmt::format("{} call{} of one run {} inside compiled code of the other",
                       s.compiled_calls, plural(s.compiled_calls), is(s.compiled_calls));
  } else if (!f_.other_arguments.empty()) {
    return OtherCalls();
  } else {
    return fmt::format(
        "No result of the step differs: {} values agree, and {} differ without effect on it.",
        judged, s.without_effect);
  }
  return fmt::format("All {} values with a partner agree, but the calls are not the same: {}.",
                     judged, what);
}

std::string FindingsScreen::NoDivergence() const {
  const Summary& s = f_.summary;
  const int64_t judged = s.rows[0] + s.rows[1] + s.rows[2];
  if (!f_.not_judged.empty()) return fmt::format("Nothing was compared: {}.", f_.not_judged);
  if (s.verdict == RunVerdict::kEqual) {
    return fmt::format("No divergence: all {} values recorded on both sides are {}.", judged,
                       f_.equal == "equal" ? "equal in every recorded number" : f_.equal);
  }
  if (s.verdict == RunVerdict::kNoise) {
    const std::string largest = ShortNumber(f_.largest_noise);
    // Digests may differ where no statistic does.
    const std::string worst =
        f_.largest_noise > 0 ? fmt::format(" (largest {} roundings of their dtype)", largest) : "";
    if (s.rows[0] == 0 && f_.why_largest_noise.empty()) {
      return fmt::format("No divergence: all {} values differ by no more than rounding explains{}.",
                         s.rows[1], worst);
    }
    if (!f_.why_largest_noise.empty()) {
      return fmt::format(
          "No divergence: {} values are {}, {} differ by no more than rounding explains. The "
          "largest difference, {} roundings of its dtype, is {}.",
          s.rows[0], f_.equal, s.rows[1], largest, Clean(f_.why_largest_noise));
    }
    return fmt::format(
        "No divergence: {} values are {}, {} differ by no more than rounding explains{}.",
        s.rows[0], f_.equal, s.rows[1], worst);
  }
  if (s.verdict == RunVerdict::kUnknown && ComparedTooLittle(s)) {
    return fmt::format(
        "No divergence among the values that could be compared, but these are only {} of the {} "
        "values of the target and of the {} of the golden: this is not a pass.",
        s.compared, s.target_values, s.golden_values);
  }
  if (s.verdict == RunVerdict::kUnknown) {
    return fmt::format(
        "No divergence among the {} values that could be judged, but {} could not be: this is "
        "not a pass.",
        judged, s.rows[3] - s.neutral_rows);
  }
  if (s.verdict == RunVerdict::kStructure) return OtherStructure();
  if (!f_.other_arguments.empty()) return OtherCalls();
  return s.rows[2] > 0
             ? fmt::format(
                   "{} values differ, and none of them is known to reach a result of the step.",
                   s.rows[2])
             : fmt::format(
                   "All {} values with a partner agree, but the results of {} call{} without a "
                   "partner are not compared, first {}.",
                   judged, s.calls_compared_nowhere, s.calls_compared_nowhere == 1 ? "" : "s",
                   Clean(f_.compared_nowhere));
}

// The widths of the columns of names and of worst values. A name that is wider than its column
// has a line of its own.
FindingsScreen::TableWidths FindingsScreen::WidthsOf(
    const std::vector<Findings::OtherCall>& calls) const {
  constexpr int kOthers = 2 + 2 + 10 + 2 + 2 + 9;  // class, roundings and blanks
  constexpr int kLeastWhat = 24;
  int name = Columns(Translated(std::string(kTableTitle))), what = 0;
  for (const Findings::OtherCall& call : calls) {
    name = std::max(name, Columns(Clean(call.name)));
    what = std::max(what, Columns(Translated(Clean(call.what))));
  }
  if (whole_) return {name, std::max(what, width_ - kOthers - name)};
  if (name > width_ - kOthers - std::min(what, kLeastWhat))
    name = Columns(Translated(std::string(kTableTitle)));
  return {name, width_ - kOthers - name};
}

Lines FindingsScreen::LinesOf(const Findings::OtherCall& call, const TableWidths& widths) const {
  Lines lines;
  const std::string name = Clean(call.name), text = Translated(Clean(call.what));
  const bool beside = Columns(name) <= widths.name;
  if (!beside) {
    for (const std::string& part : Wrap(name, width_ - 2)) lines.push_back("  " + part);
  }
  const std::string_view color = call.call_class == CallClass::kIntroduced ? kRed : kYellow;
  bool first = true;
  for (const std::string& what : whole_ ? Lines{text} : Wrap(text, widths.what)) {
    const std::string class_text =
        Pad(first ? Translated(std::string(ClassName(call.call_class))) : "", 10);
    lines.push_back(fmt::format(
        "  {}  {}  {}", Pad(first && beside ? name : "", widths.name),
        first ? Paint(color, class_text) : class_text,
        first ? fmt::format("{}  {:>9}", Pad(what, widths.what), call.roundings) : what));
    first = false;
  }
  return lines;
}

Lines FindingsScreen::Table(int room) const {
  constexpr int kOtherLines = 3;
  if (whole_) room = INT_MAX;
  const size_t fit = static_cast<size_t>(std::max(room - kOtherLines, 0));
  std::vector<Findings::OtherCall> calls = f_.others;
  if (calls.size() > fit) calls.resize(fit);
  if (calls.empty()) return {};
  int64_t more = f_.more_others + static_cast<int64_t>(f_.others.size() - calls.size());
  const TableWidths widths = WidthsOf(calls);
  Lines lines{"", Paint(kDim, fmt::format("  {}  {}  {}  {}",
                                          Pad(Translated(std::string(kTableTitle)), widths.name),
                                          Pad(Translated("class"), 10),
                                          Pad(Translated("worst value"), widths.what),
                                          Translated("roundings")))};
  const size_t heading = lines.size();
  for (size_t i = 0; i < calls.size(); ++i) {
    const Lines of_call = LinesOf(calls[i], widths);
    if (static_cast<int>(lines.size() + of_call.size()) >= room) {
      more += static_cast<int64_t>(calls.size() - i);
      break;
    }
    Append(of_call, &lines);
  }
  if (lines.size() == heading) return {};
  if (more > 0) lines.push_back(Translated(fmt::format("  and {} more", more)));
  return lines;
}

Lines FindingsScreen::Footer() const {
  const Summary& s = f_.summary;
  Lines lines;
  for (const LabelledText& counts : CountsOf(f_))
    lines.push_back(fmt::format("{}  {}", Pad(Translated(std::string(counts.label)), 7),
                                Translated(counts.text)));
  for (const bool target : {true, false}) {
    const int64_t count = target ? s.target_only_calls : s.golden_only_calls;
    if (count == 0) continue;
    Append(OneSideOnly(target, count), &lines);
  }
  if (!f_.rewrites.empty()) {
    const Lines folded = Fold("rewritten: " + Clean(f_.rewrites), width_);
    lines.push_back(folded.size() == 1 || whole_
                        ? folded[0]
                        : CutMiddle(Translated("rewritten: " + Clean(f_.rewrites)), width_));
    if (whole_) lines.insert(lines.end(), folded.begin() + 1, folded.end());
  }
  Append(NotObserved(), &lines);
  return lines;
}

// "only in the target: 7 calls: NAME, NAME and 5 more", with as many names as fit.
Lines FindingsScreen::OneSideOnly(bool target, int64_t count) const {
  const size_t most_lines = lines_ < 30 ? 1 : 2;
  Lines lines;
  std::string names;
  int64_t listed = 0;
  for (const std::string& name : (target ? f_.target_side : f_.golden_side).only_here) {
    names += fmt::format("{}{}", listed++ > 0 ? ", " : "", Clean(name));
    Lines longer =
        Fold(fmt::format("only in the {}: {} call{}: {}{}", target ? "target" : "golden", count,
                         count == 1 ? "" : "s", names,
                         count > listed ? fmt::format(" and {} more", count - listed) : ""),
             width_);
    if (!lines.empty() && !whole_ && longer.size() > most_lines) break;
    lines = std::move(longer);
  }
  return lines;
}

// On a terminal as many sentences as fit into three lines.
Lines FindingsScreen::NotObserved() const {
  constexpr size_t kMostLines = 3;
  Lines sentences, lines;
  for (const std::string& sentence : f_.not_observed) {
    // Calls without a partner have their own lines.
    if (sentence.find(" no partner in the ") == sentence.npos) sentences.push_back(Clean(sentence));
  }
  std::string text = "not observed: ";
  for (size_t i = 0; i < sentences.size(); ++i) {
    text += (i > 0 ? "; " : "") + sentences[i];
    const size_t rest = sentences.size() - i - 1;
    const std::string shown =
        rest == 0 || whole_ ? text : fmt::format("{}; and {} more (--format json)", text, rest);
    Lines longer = Fold(shown, width_);
    if (!whole_ && longer.size() > kMostLines) {
      return lines.empty() ? Wrap(Translated(shown), width_, kMostLines) : lines;
    }
    lines = std::move(longer);
  }
  return lines;
}

}  // namespace msprobe::compare
