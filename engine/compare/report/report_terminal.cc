#include "engine/compare/report/report_terminal.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/first_bits.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {
namespace {

class Screen {
 public:
  Screen(const Comparison& c, const TerminalOptions& options)
      : c_(c),
        s_(Summarize(c)),
        width_(std::clamp(options.width, 60, 100)),
        lines_(options.lines),
        colors_(options.colors),
        whole_(options.whole) {}

  std::string Draw() {
    std::vector<std::string> head = Header(), foot = Footer();
    std::vector<std::string> lines = head;
    Append(Finding(), &lines);
    Append(LegendLines(lines, foot), &foot);
    const int left = lines_ - static_cast<int>(lines.size() + foot.size());
    Append(Table(left), &lines);
    Append(foot, &lines);
    std::string out;
    for (const std::string& line : lines) out += line + '\n';
    return out;
  }

 private:
  static void Append(const std::vector<std::string>& more, std::vector<std::string>* lines) {
    lines->insert(lines->end(), more.begin(), more.end());
  }
  std::string Paint(std::string_view color, std::string_view text) const {
    return colors_ ? fmt::format("{}{}{}", color, text, kReset) : std::string(text);
  }

  // The lines of a text with names that must not be cut.
  std::vector<std::string> Fold(std::string_view text, int width) const {
    return whole_ ? WrapWords(text, width) : Wrap(text, width);
  }
  // Lines with `label` before the first one.
  std::vector<std::string> Labelled(std::string_view label, std::string_view text) const {
    std::vector<std::string> lines;
    const int room = width_ - Columns(label);
    for (const std::string& line : Fold(text, room))
      lines.push_back(Pad(lines.empty() ? label : "", Columns(label)) + line);
    return lines;
  }
  // Names are in all three parts, so the words are searched in the texts that are about calls.
  std::vector<std::string> LegendLines(const std::vector<std::string>& finding,
                                       const std::vector<std::string>& foot) const {
    std::string text;
    for (const auto* part : {&finding, &foot}) {
      for (const std::string& line : *part) text += line + '\n';
    }
    const std::string legend = Legend(text);
    return legend.empty() ? std::vector<std::string>() : Labelled("legend   ", legend);
  }

  std::vector<std::string> Header() const {
    std::vector<std::string> lines;
    const std::string left = fmt::format("msprobe compare, by {}", ModeName(c_.mode));
    const std::string_view headline = Headline(s_.verdict);
    lines.push_back(left +
                    std::string(std::max<int>(1, width_ - Columns(left) - Columns(headline)), ' ') +
                    Paint(ColorOf(s_.verdict), headline));
    const auto side = [&](const char* name, const Dump& dump) {
      const std::string about =
          fmt::format("{} calls, {} values{}{}", dump.records.size(), dump.leaves.size(),
                      dump.dialect == Dialect::kNone ? "" : ", " + dump.DialectName(),
                      dump.complete ? "" : ", CUT SHORT");
      const std::string path = Clean(Folder(dump));
      const int room = width_ - 10 - 2 - Columns(about);
      lines.push_back(fmt::format("  {}  {}  {}", name,
                                  Pad(whole_ ? path : CutMiddle(path, room), room), about));
    };
    side("target", c_.target);
    side("golden", c_.golden);
    const auto also = [&](std::string_view label, const std::string& text) {
      if (!text.empty()) Append(Labelled(fmt::format("  {:<6}  ", label), Clean(text)), &lines);
    };
    const RunStart& o = c_.run_start;
    const bool both = !o.weights.empty() && !o.data.empty();
    also("began", o.weights.empty() && o.data.empty()
                      ? ""
                      : "from " + o.weights + (both ? " and " : "") + o.data);
    also("run", o.settings);
    also("exact", c_.exact);
    lines.push_back("");
    return lines;
  }

  static std::string_view Folder(const Dump& dump) {
    const std::string_view path = dump.path;
    return path.ends_with("/dump.json") ? path.substr(0, path.size() - 10) : path;
  }

  // The first divergence, or why there is none.
  std::vector<std::string> Finding() const {
    std::vector<std::string> lines;
    const auto add = [&](std::string_view text) {
      for (const std::string& line : Fold(Clean(text), width_ - 4)) lines.push_back("  | " + line);
    };
    const std::string bits = DescribeFirstBits(c_);
    if (c_.first.pair < 0) {
      lines = Fold(NoFinding(), width_);
      if (!bits.empty()) add(bits);
      return lines;
    }
    const FirstDivergence& f = c_.first;
    const std::string title = "FIRST DIVERGENCE  ";
    const std::string sure = fmt::format("confidence {:.0f}%", 100 * f.confidence);
    const int room = width_ - Columns(title) - Columns(sure) - 2;
    const std::string name = Clean(EntryName(c_, f.pair));
    const bool fits = Columns(name) <= room;
    lines.push_back(Paint(kRed, title) + Paint(kBold, Pad(fits ? name : "", room)) + "  " + sure);
    if (!fits) add(name);
    for (const std::string& line : PlaceLines(f, width_ - 4, whole_))
      lines.push_back("  | " + line);
    add(f.why);
    if (!f.advice.empty()) add("next: " + f.advice);
    if (!bits.empty()) add(bits);
    return lines;
  }

  std::string NoFinding() const {
    const int64_t judged = s_.rows[0] + s_.rows[1] + s_.rows[2];
    if (const std::string_view why = WhyNothingWasJudged(c_, s_); !why.empty()) {
      return fmt::format("Nothing was compared: {}.", why);
    }
    if (s_.verdict == RowVerdict::kEqual) {
      return fmt::format(
          "No divergence: all {} values recorded on both sides are {}.", judged,
          EqualWord(c_) == "equal" ? "equal in every recorded number" : EqualWord(c_));
    }
    if (s_.verdict == RowVerdict::kNoise) {
      return fmt::format(
          "No divergence: {} values are {}, {} differ by no more than rounding explains "
          "(largest {} roundings of their dtype).",
          s_.rows[0], EqualWord(c_), s_.rows[1], ShortNumber(LargestNoise()));
    }
    if (s_.verdict == RowVerdict::kUnknown) {
      return fmt::format(
          "No divergence among the {} values that could be judged, but {} could not be: this is "
          "not a pass.",
          judged, s_.rows[3] - s_.neutral_rows);
    }
    const std::string otherwise = DescribeDifferingArguments(c_);
    if (!otherwise.empty()) {
      return fmt::format("All results agree, but the two runs did not make the same calls: {}.",
                         Clean(otherwise));
    }
    return s_.rows[2] > 0
               ? fmt::format(
                     "{} values differ, but none of them is data that a call takes or returns.",
                     s_.rows[2])
               : fmt::format(
                     "All {} values with a partner agree, but the two runs did not make the same "
                     "calls.",
                     judged);
  }

  double LargestNoise() const {
    double largest = 0;
    for (const Measure& m : c_.measures) {
      if (m.verdict == RowVerdict::kNoise && m.severity > largest) largest = m.severity;
    }
    return largest;
  }

  struct Line {
    std::string name, what, size;
    CallClass call_class;
  };

  // The calls that differ, other than the first divergence: at most `most`, and in `more` how many
  // more there are.
  std::vector<Line> CallsThatDiffer(size_t most, int64_t* more) const {
    std::vector<Line> calls;
    for (int32_t p = 0; p < static_cast<int32_t>(c_.pairs.size()); ++p) {
      const RecordPair& pair = c_.pairs[p];
      if (p == c_.first.pair || pair.target < 0 || pair.golden < 0) continue;
      const CallSummary call = SummarizeCall(c_, p);
      if (!call.in.differs && !call.out.differs && !call.arguments.differs) continue;
      if (calls.size() >= most) {
        ++*more;
        continue;
      }
      const SideSummary& side = call.out.differs  ? call.out
                                : call.in.differs ? call.in
                                                  : call.arguments;
      const Measure& m = c_.measures[side.worst_row];
      calls.push_back({Clean(EntryName(c_, p)), Clean(DescribeError(c_, side.worst_row)),
                       m.reason == Reason::kValueDiffers || std::isnan(m.severity)
                           ? "-"
                           : ShortNumber(m.severity),
                       c_.classes[p]});
    }
    return calls;
  }

  // The widths of the columns of names and of worst values. A name that is wider than its column
  // has a line of its own.
  struct TableWidths {
    int name = 0, what = 0;
  };
  TableWidths WidthsOf(const std::vector<Line>& calls) const {
    constexpr int kOthers = 2 + 2 + 10 + 2 + 2 + 9;  // class, roundings and blanks
    constexpr int kLeastWhat = 24;
    int name = Columns(kTableTitle), what = 0;
    for (const Line& line : calls) {
      name = std::max(name, Columns(line.name));
      what = std::max(what, Columns(line.what));
    }
    if (whole_) return {name, std::max(what, width_ - kOthers - name)};
    if (name > width_ - kOthers - std::min(what, kLeastWhat)) name = Columns(kTableTitle);
    return {name, width_ - kOthers - name};
  }

  std::vector<std::string> LinesOf(const Line& call, const TableWidths& widths) const {
    std::vector<std::string> lines;
    const bool beside = Columns(call.name) <= widths.name;
    if (!beside) {
      for (const std::string& part : Wrap(call.name, width_ - 2)) lines.push_back("  " + part);
    }
    const std::string_view color = call.call_class == CallClass::kIntroduced ? kRed : kYellow;
    bool first = true;
    for (const std::string& what :
         whole_ ? std::vector<std::string>{call.what} : Wrap(call.what, widths.what)) {
      const std::string class_text = Pad(first ? ClassName(call.call_class) : "", 10);
      lines.push_back(
          fmt::format("  {}  {}  {}", Pad(first && beside ? call.name : "", widths.name),
                      first ? Paint(color, class_text) : class_text,
                      first ? fmt::format("{}  {:>9}", Pad(what, widths.what), call.size) : what));
      first = false;
    }
    return lines;
  }

  // As many calls that differ as fit into `room` lines, of which a blank line, a heading and "and N
  // more" take three.
  std::vector<std::string> Table(int room) const {
    constexpr int kMostCalls = 8, kOtherLines = 3;
    if (whole_) room = INT_MAX;
    int64_t more = 0;
    const std::vector<Line> calls =
        CallsThatDiffer(static_cast<size_t>(std::clamp(room - kOtherLines, 0, kMostCalls)), &more);
    if (calls.empty()) return {};
    const TableWidths widths = WidthsOf(calls);
    std::vector<std::string> lines{
        "", Paint(kDim, fmt::format("  {}  {}  {}  roundings", Pad(kTableTitle, widths.name),
                                    Pad("class", 10), Pad("worst value", widths.what)))};
    const size_t heading = lines.size();
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::vector<std::string> of_call = LinesOf(calls[i], widths);
      if (static_cast<int>(lines.size() + of_call.size()) >= room) {
        more += static_cast<int64_t>(calls.size() - i);
        break;
      }
      Append(of_call, &lines);
    }
    if (lines.size() == heading) return {};
    if (more > 0) lines.push_back(fmt::format("  and {} more", more));
    return lines;
  }

  std::vector<std::string> Footer() const {
    std::vector<std::string> lines{""};
    const auto counts = [](const auto& names) {
      std::string text;
      for (const auto& [count, name] : names) {
        if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
      }
      return text.empty() ? std::string("none") : text;
    };
    using Named = std::vector<std::pair<int64_t, std::string_view>>;
    lines.push_back("calls    " + counts(Named{{s_.calls[0], "equal"},
                                               {s_.calls[1], "within rounding"},
                                               {s_.calls[2], "introduced"},
                                               {s_.calls[3], "inherited"},
                                               {s_.calls[4], "unknown"},
                                               {s_.aligned_calls, "paired under another name"}}));
    lines.push_back("values   " + counts(Named{{s_.rows[0], "equal"},
                                               {s_.rows[1], "within rounding"},
                                               {s_.rows[2], "differ"},
                                               {s_.rows[3] - s_.neutral_rows, "unknown"},
                                               {s_.neutral_rows, "with nothing to compare"}}));
    for (const bool target : {true, false}) {
      const int64_t count = target ? s_.target_only_calls : s_.golden_only_calls;
      if (count == 0) continue;
      Append(OneSideOnly(target, count), &lines);
    }
    Append(NotObserved(), &lines);
    return lines;
  }

  // "only in the target: 7 calls: NAME, NAME and 5 more", with as many names as fit.
  std::vector<std::string> OneSideOnly(bool target, int64_t count) const {
    constexpr int64_t kMostNames = 4;
    const size_t most_lines = lines_ < 30 ? 1 : 2;
    std::vector<std::string> lines;
    std::string names;
    int64_t listed = 0;
    for (size_t p = 0; p < c_.pairs.size() && listed < kMostNames; ++p) {
      if ((target ? c_.pairs[p].golden : c_.pairs[p].target) >= 0) continue;
      names += fmt::format("{}{}", listed++ > 0 ? ", " : "",
                           Clean(EntryName(c_, static_cast<int32_t>(p))));
      std::vector<std::string> longer =
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
  std::vector<std::string> NotObserved() const {
    constexpr size_t kMostLines = 3;
    std::vector<std::string> sentences, lines;
    for (const std::string& sentence : c_.not_observed) {
      // Calls without a partner have their own lines.
      if (sentence.find(" no partner in the ") == sentence.npos)
        sentences.push_back(Clean(sentence));
    }
    std::string text = "not observed: ";
    for (size_t i = 0; i < sentences.size(); ++i) {
      text += (i > 0 ? "; " : "") + sentences[i];
      const size_t rest = sentences.size() - i - 1;
      const std::string shown =
          rest == 0 || whole_ ? text : fmt::format("{}; and {} more (--format json)", text, rest);
      std::vector<std::string> longer = Fold(shown, width_);
      if (!whole_ && longer.size() > kMostLines) {
        return lines.empty() ? Wrap(shown, width_, kMostLines) : lines;
      }
      lines = std::move(longer);
    }
    return lines;
  }

  static constexpr std::string_view kTableTitle = "also differs";
  const Comparison& c_;
  const Summary s_;
  const int width_, lines_;
  const bool colors_, whole_;
};

}  // namespace

std::string TerminalReport(const Comparison& comparison, const TerminalOptions& options) {
  return Screen(comparison, options).Draw();
}

}  // namespace msprobe::compare
