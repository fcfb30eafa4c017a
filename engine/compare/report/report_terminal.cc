#include "engine/compare/report/report_terminal.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/compare/explain/evidence.h"
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
        colors_(options.colors) {}

  std::string Draw() {
    std::vector<std::string> head = Header(), foot = Footer();
    std::vector<std::string> lines = head;
    Append(Finding(), &lines);
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
      const int room = width_ - 10 - 2 - Columns(about);
      lines.push_back(
          fmt::format("  {}  {}  {}", name, Pad(CutLeft(Clean(Folder(dump)), room), room), about));
    };
    side("target", c_.target);
    side("golden", c_.golden);
    const auto also = [&](std::string_view label, const std::string& text) {
      if (text.empty()) return;
      std::vector<std::string> wrapped = Wrap(Clean(text), width_ - 10, 2);
      for (size_t i = 0; i < wrapped.size(); ++i)
        lines.push_back(fmt::format("  {:<6}  {}", i == 0 ? label : "", wrapped[i]));
    };
    const RunStart& o = c_.run_start;
    const bool both = !o.weights.empty() && !o.data.empty();
    also("began", o.weights.empty() && o.data.empty()
                      ? ""
                      : "from " + o.weights + (both ? " and " : "") + o.data);
    also("run", o.settings);
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
    const auto add = [&](std::string_view text, size_t most) {
      for (std::string& line : Wrap(Clean(text), width_ - 4, most)) lines.push_back("  | " + line);
    };
    if (c_.first.pair < 0) {
      for (std::string& line : Wrap(NoFinding(), width_, 3)) lines.push_back(std::move(line));
      return lines;
    }
    const FirstDivergence& f = c_.first;
    const std::string title = "FIRST DIVERGENCE  ";
    const std::string sure = fmt::format("confidence {:.0f}%", 100 * f.confidence);
    const int room = width_ - Columns(title) - Columns(sure) - 2;
    const std::string name = Clean(EntryName(c_, f.pair));
    const bool fits = Columns(name) <= room;
    lines.push_back(Paint(kRed, title) + Paint(kBold, Pad(fits ? name : "", room)) + "  " + sure);
    if (!fits) add(name, 3);
    const bool low = lines_ < 22;
    if (!f.source_line.empty())
      add(CutSource(f.source_line, low ? width_ - 4 : SourceRoom(width_ - 4)), low ? 1 : 2);
    add(f.why, 4);
    if (!f.advice.empty()) add("next: " + f.advice, 2);
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

  // The length of the beginning that the names of all calls that differ have in common, up to a
  // dot.
  size_t SharedPath(const std::vector<Line>& calls) const {
    if (c_.first.pair < 0) return 0;
    const std::string first = Clean(EntryName(c_, c_.first.pair));
    size_t shared = first.size();
    for (const Line& call : calls) {
      const auto [a, b] =
          std::mismatch(call.name.begin(), call.name.end(), first.begin(), first.end());
      shared = std::min(shared, static_cast<size_t>(a - call.name.begin()));
    }
    return first.rfind('.', shared) + 1;
  }

  // Cuts a name to `width`. The part that all names have in common (`shared`) is cut first.
  static std::string ShortName(std::string_view name, size_t shared, int width) {
    if (Columns(name) <= width) return std::string(name);
    const std::string whole = CutParts(name, width);
    if (shared <= 3 || !whole.starts_with("...")) return whole;
    return CutParts("..." + std::string(name.substr(shared)), width);
  }

  // The calls that differ, other than the first divergence. As many as fit into `room` lines, of
  // which a blank line, a heading and "and N more" take three.
  std::vector<std::string> Table(int room) const {
    std::vector<std::string> lines;
    std::vector<Line> calls;
    int64_t more = 0;
    const int most = std::min(8, room - 3);
    if (most < 1) return lines;
    for (int32_t p = 0; p < static_cast<int32_t>(c_.pairs.size()); ++p) {
      const RecordPair& pair = c_.pairs[p];
      if (p == c_.first.pair || pair.target < 0 || pair.golden < 0) continue;
      const CallSummary call = SummarizeCall(c_, p);
      if (!call.in.differs && !call.out.differs && !call.arguments.differs) continue;
      if (static_cast<int>(calls.size()) >= most) {
        ++more;
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
    if (calls.empty()) return lines;
    int name_width = Columns("also differs");
    for (const Line& line : calls) name_width = std::max(name_width, Columns(line.name));
    constexpr int kOthers = 2 + 2 + 10 + 2 + 2 + 9;  // class, roundings and blanks
    constexpr int kLeastWhat = 12;
    name_width = std::min({name_width, width_ / 2, width_ - kOthers - kLeastWhat});
    const int what_width = width_ - kOthers - name_width;
    const size_t shared = SharedPath(calls);
    lines.push_back("");
    lines.push_back(
        Paint(kDim, fmt::format("  {}  {}  {}  roundings", Pad("also differs", name_width),
                                Pad("class", 10), Pad("worst value", what_width))));
    for (const Line& line : calls) {
      const std::string_view color = line.call_class == CallClass::kIntroduced ? kRed : kYellow;
      lines.push_back(fmt::format("  {}  {}  {}  {:>9}",
                                  Pad(ShortName(line.name, shared, name_width), name_width),
                                  Paint(color, Pad(ClassName(line.call_class), 10)),
                                  Pad(CutRight(line.what, what_width), what_width), line.size));
    }
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
      std::string text = fmt::format("only in the {}: {} call{}: ", target ? "target" : "golden",
                                     count, count == 1 ? "" : "s");
      lines.push_back(CutRight(text + Clean(FirstUnmatched(target)), width_));
    }
    // Calls without a partner have their own lines above.
    std::string rest;
    for (const std::string& sentence : c_.not_observed) {
      if (sentence.find(" no partner in the ") != sentence.npos) continue;
      rest += (rest.empty() ? "" : "; ") + sentence;
    }
    if (!rest.empty()) {
      for (std::string& line : Wrap("not observed: " + Clean(rest), width_, 3))
        lines.push_back(std::move(line));
    }
    return lines;
  }

  std::string FirstUnmatched(bool target) const {
    std::string names;
    int listed = 0;
    for (size_t p = 0; p < c_.pairs.size() && listed < 4; ++p) {
      if ((target ? c_.pairs[p].golden : c_.pairs[p].target) >= 0) continue;
      names +=
          fmt::format("{}{}", listed++ > 0 ? ", " : "", EntryName(c_, static_cast<int32_t>(p)));
    }
    return names;
  }

  const Comparison& c_;
  const Summary s_;
  const int width_, lines_;
  const bool colors_;
};

}  // namespace

std::string TerminalReport(const Comparison& comparison, const TerminalOptions& options) {
  return Screen(comparison, options).Draw();
}

}  // namespace msprobe::compare
