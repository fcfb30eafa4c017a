#include "engine/compare/report/report_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "engine/compare/judge/judge.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {
namespace {

std::string Ranks(std::span<const int32_t> ranks) {
  if (ranks.size() == 1 && ranks[0] < 0) return "the dump";
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", RankList(ranks));
}

// Origins at the same call on several ranks are shown as one.
struct Place {
  const RankOrigin* origin;  // of the first rank
  const RankResult* result;
  std::vector<int32_t> ranks;
};

class Screen {
 public:
  Screen(std::span<const RankResult> results, const RanksCompared& compared,
         const TerminalOptions& options)
      : results_(results),
        compared_(compared),
        width_(std::clamp(options.width, 60, 100)),
        lines_left_(options.whole ? INT_MAX : options.lines),
        colors_(options.colors),
        whole_(options.whole) {}

  std::string Draw() {
    Header();
    const std::vector<StepOrigins> steps = OriginsOfSteps(results_);
    Verdicts();
    const auto first = std::find_if(steps.begin(), steps.end(), [](const StepOrigins& step) {
      return !step.found.origins.empty();
    });
    if (first != steps.end()) Begins(*first, steps.size() > 1);
    CallsMadeOtherwise(first != steps.end() ? first->step : INT32_MAX, steps.size() > 1);
    for (const std::string& sentence : compared_.left_out) Say("not compared: " + sentence);
    if (const std::string legend = Legend(out_); !legend.empty()) {
      Line("");
      Say("legend: " + legend);
    }
    return std::move(out_);
  }

 private:
  // A line that is left out when the screen is full.
  void Line(const std::string& text) {
    if (lines_left_-- > 0) out_ += text + '\n';
  }
  // A text with names: all of it, also when the screen is full.
  void Say(const std::string& text, std::string_view indent = "") {
    const int room = width_ - Columns(indent);
    for (const std::string& line : whole_ ? WrapWords(Clean(text), room) : Wrap(Clean(text), room))
      Must(std::string(indent) + line);
  }
  void Must(const std::string& text) {
    --lines_left_;
    out_ += text + '\n';
  }
  std::string Paint(std::string_view color, std::string_view text) const {
    return colors_ ? fmt::format("{}{}{}", color, text, kReset) : std::string(text);
  }

  void Header() {
    const auto compared = std::find_if(results_.begin(), results_.end(),
                                       [](const RankResult& r) { return r.failed.ok(); });
    const std::string left = fmt::format(
        "msprobe compare{}, {}",
        compared == results_.end() ? "" : fmt::format(", by {}", ModeName(compared->mode)), Size());
    const RowVerdict verdict = VerdictOver(results_);
    const std::string_view headline = Headline(verdict);
    Line(left + std::string(std::max(1, width_ - Columns(left) - Columns(headline)), ' ') +
         Paint(ColorOf(verdict), headline));
    for (const bool target : {true, false}) {
      const std::string path = Clean(target ? compared_.target : compared_.golden);
      Line(fmt::format("  {}  {}", target ? "target" : "golden",
                       whole_ ? path : CutMiddle(path, width_ - 10)));
    }
    Line("");
  }

  // "2 steps, 4 ranks"
  std::string Size() const {
    std::set<int32_t> steps, ranks;
    for (const RankResult& r : results_) steps.insert(r.step), ranks.insert(r.rank);
    std::string text = steps.size() > 1 ? fmt::format("{} steps", steps.size()) : "";
    if (ranks.size() > 1) {
      text += fmt::format("{}{} ranks", text.empty() ? "" : ", ", ranks.size());
    }
    return text;
  }

  // One line for each verdict: "steps 0-2: equal  ranks 0-3". Steps in a row with the same verdicts
  // share their lines.
  void Verdicts() {
    std::map<int32_t, std::map<int, std::vector<int32_t>>> of_steps;  // step, verdict -> ranks
    for (const RankResult& r : results_) {
      of_steps[r.step][r.failed.ok() ? Badness(r.summary.verdict) : kFailed].push_back(r.rank);
    }
    std::vector<std::pair<std::vector<int32_t>, std::map<int, std::vector<int32_t>>>> lines;
    for (auto& [step, verdicts] : of_steps) {
      if (!lines.empty() && lines.back().second == verdicts) {
        lines.back().first.push_back(step);
      } else {
        lines.push_back({{step}, verdicts});
      }
    }
    constexpr size_t kMostLines = 9;
    size_t shown = 0, hidden = 0;
    for (const auto& [steps, verdicts] : lines) {
      const std::string label =
          of_steps.size() < 2
              ? ""
              : fmt::format("step{} {}: ", steps.size() == 1 ? "" : "s", RankList(steps));
      for (const auto& [badness, ranks] : verdicts) {
        if (shown++ >= kMostLines) {
          ++hidden;
          continue;
        }
        const std::string_view word = badness == kFailed ? "FAILED" : kWords[badness];
        const std::string text = ranks.size() == 1 && ranks[0] < 0 ? "" : "  " + Ranks(ranks);
        const int word_width = text.empty() ? Columns(word) : 15;  // "within rounding"
        const int room = width_ - 2 - Columns(label) - word_width;
        Line("  " + label +
             Paint(badness == kFailed ? kRed : ColorOf(kVerdicts[badness]), Pad(word, word_width)) +
             (whole_ ? text : CutMiddle(text, room)));
      }
    }
    if (hidden > 0) Line(fmt::format("  and {} more lines in the summary file", hidden));
    size_t failures = 0;
    for (const RankResult& r : results_) {
      if (r.failed.ok() || ++failures > 3) continue;
      Say(fmt::format("{}: {}", r.rank < 0 ? "the dump" : fmt::format("rank {}", r.rank),
                      r.failed.message()),
          "    ");
    }
  }

  static std::vector<Place> PlacesOf(const StepOrigins& step, std::span<const RankResult> results) {
    std::vector<Place> places;
    for (const RankOrigin& origin : step.found.origins) {
      const RankResult& result = results[step.results[origin.trace]];
      const auto same = std::find_if(places.begin(), places.end(), [&](const Place& p) {
        return p.result->first_name == result.first_name &&
               p.origin->in_exchange == origin.in_exchange &&
               p.origin->exchanges_before == origin.exchanges_before;
      });
      if (same != places.end()) {
        same->ranks.push_back(result.rank);
      } else {
        places.push_back({&origin, &result, {result.rank}});
      }
    }
    for (Place& place : places) std::sort(place.ranks.begin(), place.ranks.end());
    return places;
  }

  // "step 3, rank 1, ", without the parts that are not known.
  std::string Where(int32_t step, const std::vector<int32_t>& ranks, bool say_step) const {
    constexpr int kMostColumns = 32;
    std::string text = say_step && step >= 0 ? fmt::format("step {}, ", step) : "";
    if (ranks.size() > 1 || ranks[0] >= 0)
      text += (whole_ ? Ranks(ranks) : CutMiddle(Ranks(ranks), kMostColumns)) + ", ";
    return text;
  }

  void Begins(const StepOrigins& step, bool say_step) {
    const std::vector<Place> places = PlacesOf(step, results_);
    const Place& place = places.front();
    const FirstDivergence& f = place.result->first;
    Line("");
    const std::string title = "FIRST DIVERGENCE  ";
    const std::string sure = fmt::format("confidence {:.0f}%", 100 * f.confidence);
    const std::string where =
        Where(step.step, place.ranks, say_step) + Clean(place.result->first_name);
    const int room = width_ - Columns(title) - Columns(sure) - 2;
    const bool fits = Columns(where) <= room;
    Must(Paint(kRed, title) + Paint(kBold, Pad(fits ? where : "", room)) + "  " + sure);
    if (!fits) Say(where, "  | ");
    for (const std::string& line : PlaceLines(f, width_ - 4, whole_)) Must("  | " + line);
    if (place.origin->in_exchange) Say(DescribeExchange(*place.origin), "  | ");
    Say(f.why, "  | ");
    if (!f.advice.empty()) Say("next: " + f.advice, "  | ");
    size_t hops = 0;
    for (const RankHop& hop : step.found.hops) {
      if (hop.from.empty()) continue;
      if (++hops > 4) break;
      Say((hops == 1 ? "it travelled: " : "then: ") + DescribeHop(hop), "  ");
    }
    const auto bringing = std::count_if(step.found.hops.begin(), step.found.hops.end(),
                                        [](const RankHop& hop) { return !hop.from.empty(); });
    if (bringing > 4) Line(fmt::format("  and in {} more exchanges", bringing - 4));
    if (const std::string text = DescribeOutside(step, results_); !text.empty()) Say(text, "  ");
    for (size_t i = 1; i < std::min<size_t>(places.size(), 4); ++i) {
      Say(fmt::format("also begins on {}: {}", Ranks(places[i].ranks),
                      places[i].result->first_name),
          "  ");
    }
    if (places.size() > 4) Line(fmt::format("  and in {} more places", places.size() - 4));
  }

  // The first dumps before step `end` in which all numbers agree and the calls are not the same.
  void CallsMadeOtherwise(int32_t end, bool say_step) {
    for (const RankResult& r : results_) {
      if (r.otherwise.empty() || r.step >= end) continue;
      Line("");
      Say(fmt::format("{}all results agree, but the two runs did not make the same calls: {}",
                      Where(r.step, {r.rank}, say_step), r.otherwise));
      return;
    }
  }

  static constexpr int kFailed = 4;
  static constexpr std::string_view kWords[] = {"equal", "within rounding", "unknown", "differs"};
  static constexpr RowVerdict kVerdicts[] = {RowVerdict::kEqual, RowVerdict::kNoise,
                                             RowVerdict::kUnknown, RowVerdict::kDiffers};
  std::span<const RankResult> results_;
  const RanksCompared& compared_;
  const int width_;
  int lines_left_;
  const bool colors_, whole_;
  std::string out_;
};

}  // namespace

std::string RanksReport(std::span<const RankResult> results, const RanksCompared& compared,
                        const TerminalOptions& options) {
  return Screen(results, compared, options).Draw();
}

std::string DescribeHop(const RankHop& hop) {
  return fmt::format("{} brings it from {} to {}{}", hop.name, Ranks(hop.from), Ranks(hop.to),
                     hop.source_line.empty() ? "" : fmt::format(" ({})", hop.source_line));
}

std::string DescribeOutside(const StepOrigins& step, std::span<const RankResult> results) {
  if (step.found.from_outside.empty()) return "";
  std::vector<int32_t> ranks;
  for (const RankOrigin& o : step.found.from_outside)
    ranks.push_back(results[step.results[o.trace]].rank);
  std::sort(ranks.begin(), ranks.end());
  return fmt::format(
      "{} got wrong numbers in a way that was not recorded (as DDP exchanges gradients), "
      "at {}",
      Ranks(ranks), results[step.results[step.found.from_outside[0].trace]].first_name);
}

std::string DescribeExchange(const RankOrigin& origin) {
  if (origin.not_known.empty()) {
    return "every rank sent correct numbers to this exchange: the error is in the exchange";
  }
  return fmt::format(
      "this exchange brought the wrong number; the values that {} gave are not known",
      Ranks(origin.not_known));
}

}  // namespace msprobe::compare
