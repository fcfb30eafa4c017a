#include "engine/compare/report/findings_screen.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {
namespace {

using Lines = FindingsScreen::Lines;

constexpr std::string_view kMargin = "  | ";  // of the lines about a divergence

int WidthOf(const TerminalOptions& options) { return std::clamp(options.width, 60, 100); }

void Append(const Lines& more, Lines* lines) {
  lines->insert(lines->end(), more.begin(), more.end());
}

std::string_view Folder(std::string_view path) {
  return path.ends_with("/dump.json") ? path.substr(0, path.size() - 10) : path;
}

// "target" in a column before the texts of both sides.
std::string Padded(bool target) { return Pad((target ? "target"_t : "golden"_t).Shown(), 6); }

}  // namespace

Lines TitleLines(const Message& what, const Summary& summary, const TerminalOptions& options) {
  const Message verdict = Headline(summary.verdict), part = DescribeCompared(summary);
  const std::string title = what.Shown(), headline = verdict.Shown(), compared = part.Shown();
  const int room = WidthOf(options) - Columns(title) - Columns(headline);
  const bool beside = !compared.empty() && room > Columns(compared) + 2;
  const std::string behind =
      beside ? Message::Joined({verdict, part}, ", ").Shown().substr(headline.size()) : "";
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

Lines FindingsScreen::Fold(const Message& message, int width) const {
  const std::string text = Clean(message.Shown());
  return whole_ ? WrapWords(text, width) : Wrap(text, width);
}

Lines FindingsScreen::Labelled(std::string_view label, const Message& text) const {
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
  const Message legend = Legend(text);
  return legend.empty() ? Lines() : Labelled(Pad("legend"_t.Shown(), 9), legend);
}

Lines FindingsScreen::Sides() const {
  Lines lines;
  for (const bool target : {true, false}) {
    const Findings::Side& side = target ? f_.target_side : f_.golden_side;
    const std::string about =
        Message::Joined({"{} calls"_t(side.calls), "{} values"_t(side.values), side.dialect,
                         side.complete ? Message() : "CUT SHORT"_t},
                        ", ")
            .Shown();
    const std::string path = Clean(Folder(side.dump));
    const int room = width_ - 10 - 2 - Columns(about);
    lines.push_back(fmt::format("  {}  {}  {}", Padded(target),
                                Pad(whole_ ? path : CutMiddle(path, room), room), about));
  }
  return lines;
}

Lines FindingsScreen::Began() const {
  Lines lines;
  for (const LabelledText& condition : ConditionsOf(f_)) {
    Append(Labelled(fmt::format("  {}  ", Pad(condition.label.Shown(), 6)), condition.text),
           &lines);
  }
  return lines;
}

Lines FindingsScreen::Finding(const Place& place) const {
  Lines lines;
  const auto add = [&](const Message& text) {
    for (const std::string& line : Fold(text, width_ - 4))
      lines.push_back(std::string(kMargin) + line);
  };
  if (f_.first.pair < 0) {
    lines = Fold(Message::Joined({place.where, NoDivergence()}, ", "), width_);
    if (!f_.first_bits.empty()) add(f_.first_bits);
    return lines;
  }
  const std::string title = "FIRST DIVERGENCE"_t.Shown() + "  ";
  const std::string sure = "confidence {:.0f}%"_t(100 * f_.first.confidence).Shown();
  const int room = width_ - Columns(title) - Columns(sure) - 2;
  const Message full_name = Message::Joined({place.where, f_.first_name}, ", ");
  const std::string name = Clean(full_name.Shown());
  const bool fits = Columns(name) <= room;
  lines.push_back(Paint(kRed, title) + Paint(kBold, Pad(fits ? name : "", room)) + "  " + sure);
  if (!fits) add(full_name);
  for (const std::string& line : PlaceLines(f_.first, width_ - 4, whole_))
    lines.push_back(std::string(kMargin) + line);
  if (!place.exchange.empty()) add(place.exchange);
  if (!f_.wrong_region.empty()) add("region: {}"_t(f_.wrong_region));
  add(f_.first.why);
  if (!f_.first_bits.empty()) add(f_.first_bits);
  for (const Message& sentence : place.travelled) add(sentence);
  if (!f_.first.advice.empty()) add("next: {}"_t(f_.first.advice));
  return lines;
}

Message FindingsScreen::OtherCalls() const {
  return "All results agree, but the two runs did not make the same calls: {}."_t(
      f_.other_arguments);
}

Message FindingsScreen::OtherStructure() const {
  const Summary& s = f_.summary;
  const int64_t judged = s.rows[0] + s.rows[1] + s.rows[2];
  const int64_t alone = s.target_only_rows + s.golden_only_rows;
  Message what;
  if (!f_.unmatched_calls.empty()) {
    what =
        Message::Joined({f_.unmatched_calls,
                         f_.two_frameworks ? "each framework records calls that the other has not"_t
                                           : "their results lead to values that agree"_t},
                        "; ");
  } else if (alone > 0) {
    what = alone == 1 ? "1 value of paired calls is on one side only"_t
                      : "{} values of paired calls are on one side only"_t(alone);
  } else if (s.other_forms > 0) {
    what = s.other_forms == 1
               ? "1 value of paired calls has another form, and what it leads to agrees"_t
               : "{} values of paired calls have another form, and what they lead to agrees"_t(
                     s.other_forms);
  } else if (s.compiled_calls > 0) {
    what = s.compiled_calls == 1
               ? "1 call of one run is inside compiled code of the other"_t
               : "{} calls of one run are inside compiled code of the other"_t(s.compiled_calls);
  } else if (!f_.other_arguments.empty()) {
    return OtherCalls();
  } else {
    return "No result of the step differs: {} values agree, and {} differ without effect on it."_t(
        judged, s.without_effect);
  }
  return "All {} values with a partner agree, but the calls are not the same: {}."_t(
      judged, std::move(what));
}

Message FindingsScreen::WithinRounding() const {
  const Summary& s = f_.summary;
  const std::string largest = ShortNumber(f_.largest_noise);
  if (!f_.why_largest_noise.empty()) {
    return "No divergence: {} values are {}, {} differ by no more than rounding explains. The "
           "largest difference, {} roundings of its dtype, is {}."_t(s.rows[0], f_.equal, s.rows[1],
                                                                     largest, f_.why_largest_noise);
  }
  // Digests may differ where no statistic does.
  if (f_.largest_noise > 0) {
    return s.rows[0] == 0
               ? "No divergence: all {} values differ by no more than rounding explains (largest "
                 "{} roundings of their dtype)."_t(s.rows[1], largest)
               : "No divergence: {} values are {}, {} differ by no more than rounding explains "
                 "(largest {} roundings of their dtype)."_t(s.rows[0], f_.equal, s.rows[1],
                                                            largest);
  }
  return s.rows[0] == 0
             ? "No divergence: all {} values differ by no more than rounding explains."_t(s.rows[1])
             : "No divergence: {} values are {}, {} differ by no more than rounding explains."_t(
                   s.rows[0], f_.equal, s.rows[1]);
}

Message FindingsScreen::NoDivergence() const {
  const Summary& s = f_.summary;
  const int64_t judged = s.rows[0] + s.rows[1] + s.rows[2];
  if (!f_.not_judged.empty()) return "Nothing was compared: {}."_t(f_.not_judged);
  if (s.verdict == RunVerdict::kEqual) {
    return "No divergence: all {} values recorded on both sides are {}."_t(
        judged, f_.equal == "equal" ? "equal in every recorded number"_t : f_.equal);
  }
  if (s.verdict == RunVerdict::kNoise) return WithinRounding();
  if (s.verdict == RunVerdict::kUnknown && ComparedTooLittle(s)) {
    return "No divergence among the values that could be compared, but these are only {} of the "
           "{} values of the target and of the {} of the golden: this is not a pass."_t(
               s.compared, s.target_values, s.golden_values);
  }
  if (s.verdict == RunVerdict::kUnknown) {
    return "No divergence among the {} values that could be judged, but {} could not be: this is "
           "not a pass."_t(judged, s.rows[3] - s.neutral_rows);
  }
  if (s.verdict == RunVerdict::kStructure) return OtherStructure();
  if (!f_.other_arguments.empty()) return OtherCalls();
  if (s.rows[2] > 0) {
    return "{} values differ, and none of them is known to reach a result of the step."_t(
        s.rows[2]);
  }
  return s.calls_compared_nowhere == 1
             ? "All {} values with a partner agree, but the results of 1 call without a partner "
               "are not compared, first {}."_t(judged, f_.compared_nowhere)
             : "All {} values with a partner agree, but the results of {} calls without a partner "
               "are not compared, first {}."_t(judged, s.calls_compared_nowhere,
                                               f_.compared_nowhere);
}

// The widths of the columns of names and of worst values. A name that is wider than its column
// has a line of its own.
FindingsScreen::TableWidths FindingsScreen::WidthsOf(
    const std::vector<Findings::OtherCall>& calls) const {
  constexpr int kOthers = 2 + 2 + 10 + 2 + 2 + 9;  // class, roundings and blanks
  constexpr int kLeastWhat = 24;
  int name = Columns("also differs"_t.Shown()), what = 0;
  for (const Findings::OtherCall& call : calls) {
    name = std::max(name, Columns(Clean(call.name)));
    what = std::max(what, Columns(Clean(call.what.Shown())));
  }
  if (whole_) return {name, std::max(what, width_ - kOthers - name)};
  if (name > width_ - kOthers - std::min(what, kLeastWhat))
    name = Columns("also differs"_t.Shown());
  return {name, width_ - kOthers - name};
}

Lines FindingsScreen::LinesOf(const Findings::OtherCall& call, const TableWidths& widths) const {
  Lines lines;
  const std::string name = Clean(call.name), text = Clean(call.what.Shown());
  const bool beside = Columns(name) <= widths.name;
  if (!beside) {
    for (const std::string& part : Wrap(name, width_ - 2)) lines.push_back("  " + part);
  }
  const std::string_view color = call.call_class == CallClass::kIntroduced ? kRed : kYellow;
  bool first = true;
  for (const std::string& what : whole_ ? Lines{text} : Wrap(text, widths.what)) {
    const std::string class_text = Pad(first ? WordOf(call.call_class).Shown() : "", 10);
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
  Lines lines{
      "",
      Paint(kDim, fmt::format("  {}  {}  {}  {}", Pad("also differs"_t.Shown(), widths.name),
                              Pad("class"_t.Shown(), 10), Pad("worst value"_t.Shown(), widths.what),
                              "roundings"_t.Shown()))};
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
  if (more > 0) lines.push_back("  " + "and {} more"_t(more).Shown());
  return lines;
}

Lines FindingsScreen::Footer() const {
  const Summary& s = f_.summary;
  Lines lines;
  for (const LabelledText& counts : CountsOf(f_))
    lines.push_back(fmt::format("{}  {}", Pad(counts.label.Shown(), 7), counts.text.Shown()));
  for (const bool target : {true, false}) {
    const int64_t count = target ? s.target_only_calls : s.golden_only_calls;
    if (count == 0) continue;
    Append(OneSideOnly(target, count), &lines);
  }
  if (!f_.rewrites.empty()) {
    const Message rewritten = "rewritten: {}"_t(f_.rewrites);
    const Lines folded = Fold(rewritten, width_);
    lines.push_back(folded.size() == 1 || whole_ ? folded[0]
                                                 : CutMiddle(Clean(rewritten.Shown()), width_));
    if (whole_) lines.insert(lines.end(), folded.begin() + 1, folded.end());
  }
  Append(NotObserved(), &lines);
  return lines;
}

// "only in the target: 7 calls: NAME, NAME and 5 more", with as many names as fit.
Lines FindingsScreen::OneSideOnly(bool target, int64_t count) const {
  const size_t most_lines = lines_ < 30 ? 1 : 2;
  Lines lines;
  const Message side = target ? "target"_t : "golden"_t;
  const Message label =
      count == 1 ? "only in the {}: 1 call"_t(side) : "only in the {}: {} calls"_t(side, count);
  std::vector<Message> names;
  for (const std::string& name : (target ? f_.target_side : f_.golden_side).only_here) {
    names.emplace_back(name);
    Message listed = Message::Joined(names, ", ");
    const int64_t more = count - static_cast<int64_t>(names.size());
    if (more > 0) listed = "{} and {} more"_t(std::move(listed), more);
    Lines longer = Fold(Message::Joined({label, std::move(listed)}, ": "), width_);
    if (!lines.empty() && !whole_ && longer.size() > most_lines) break;
    lines = std::move(longer);
  }
  return lines;
}

// On a terminal as many sentences as fit into three lines.
Lines FindingsScreen::NotObserved() const {
  constexpr size_t kMostLines = 3;
  std::vector<Message> sentences;
  for (const Message& sentence : f_.not_observed) {
    // Calls without a partner have their own lines.
    if (sentence.English().find(" no partner in the ") == std::string::npos)
      sentences.push_back(sentence);
  }
  Lines lines;
  std::vector<Message> said;
  for (size_t i = 0; i < sentences.size(); ++i) {
    said.push_back(sentences[i]);
    const size_t rest = sentences.size() - i - 1;
    std::vector<Message> parts = said;
    if (rest > 0 && !whole_) parts.push_back("and {} more (--format json)"_t(rest));
    const Message shown = "not observed: {}"_t(Message::Joined(std::move(parts), "; "));
    Lines longer = Fold(shown, width_);
    if (!whole_ && longer.size() > kMostLines) {
      return lines.empty() ? Wrap(Clean(shown.Shown()), width_, kMostLines) : lines;
    }
    lines = std::move(longer);
  }
  return lines;
}

}  // namespace msprobe::compare
