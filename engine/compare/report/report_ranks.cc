#include "engine/compare/report/report_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "engine/compare/judge/judge.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "engine/compare/ranks/rank_findings.h"
#include "engine/compare/report/findings_screen.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::compare {
namespace {

Message Ranks(std::span<const int32_t> ranks) {
  if (ranks.size() == 1 && ranks[0] < 0) return "the dump"_t;
  return ranks.size() == 1 ? "rank {}"_t(RankList(ranks)) : "ranks {}"_t(RankList(ranks));
}

using Lines = FindingsScreen::Lines;

class Screen {
 public:
  Screen(std::span<const RankResult> results, const RanksCompared& compared,
         const TerminalOptions& options)
      : results_(results),
        compared_(compared),
        options_(options),
        width_(std::clamp(options.width, 60, 100)),
        whole_(options.whole) {}

  std::string Draw() {
    const std::vector<StepOrigins> steps = OriginsOfSteps(results_);
    const auto first = FirstWithOrigin(steps);
    std::vector<RankPlace> places;
    if (first != steps.end()) places = PlacesOf(*first, results_);
    const Findings found =
        FindingsOfRanks(results_, places.empty() ? nullptr : places.front().result);
    const FindingsScreen screen(found, options_);
    const bool say_step = steps.size() > 1;

    Lines head = Header();
    Append(Verdicts(), &head);
    Append(screen.Began(), &head);
    Lines finding = places.empty() ? AgreeOrNot(screen) : Begins(screen, *first, places, say_step);
    Append(CallsMadeOtherwise(first != steps.end() ? first->step : INT32_MAX, say_step), &finding);

    if (!finding.empty()) head.emplace_back();

    Lines foot, last;
    if (AnyCompared()) {
      foot = {"", Sizes(found, places, say_step)};
      Append(screen.Footer(), &foot);
    }
    for (const Message& sentence : compared_.left_out)
      Append(Fold("not compared: {}"_t(sentence)), &last);
    const int fixed = static_cast<int>(head.size() + finding.size() + last.size());
    // On a full screen the names of calls and of what is not known give way, then the sizes of the
    // dumps.
    if (!whole_ && fixed + static_cast<int>(foot.size()) > options_.lines) {
      constexpr size_t kCounts = 4;  // a blank line, sizes, calls, values
      const auto fit = static_cast<size_t>(std::max(options_.lines - fixed, 0));
      foot.resize(std::min(foot.size(), std::max(kCounts, fit)));
      if (foot.size() > fit) foot.erase(foot.begin() + 1);  // the sizes
    }
    Append(last, &foot);
    const Lines legend = screen.LegendOf({&head, &finding, &foot});
    const size_t all = head.size() + finding.size() + foot.size() + legend.size();
    if (whole_ || static_cast<int>(all) <= options_.lines) Append(legend, &foot);
    Lines lines = std::move(head);
    Append(finding, &lines);
    Append(screen.Table(options_.lines - static_cast<int>(lines.size() + foot.size())), &lines);
    Append(foot, &lines);
    std::string out;
    for (const std::string& line : lines) out += line + '\n';
    return out;
  }

 private:
  bool AnyCompared() const {
    return std::any_of(results_.begin(), results_.end(),
                       [](const RankResult& r) { return r.failed.ok(); });
  }
  static void Append(const Lines& more, Lines* lines) {
    lines->insert(lines->end(), more.begin(), more.end());
  }
  // A text with names: all of it, also when the screen is full.
  Lines Fold(const Message& message, std::string_view indent = "") const {
    const std::string text = Clean(message.Shown());
    const int room = width_ - Columns(indent);
    Lines lines;
    for (const std::string& line : whole_ ? WrapWords(text, room) : Wrap(text, room))
      lines.push_back(std::string(indent) + line);
    return lines;
  }
  std::string Paint(std::string_view color, std::string_view text) const {
    return options_.colors ? fmt::format("{}{}{}", color, text, kReset) : std::string(text);
  }

  Lines Header() const {
    const auto compared = std::find_if(results_.begin(), results_.end(),
                                       [](const RankResult& r) { return r.failed.ok(); });
    const Message title = Message::Joined(
        {compared == results_.end() ? "msprobe compare"_t
                                    : "msprobe compare, by {}"_t(WordOf(compared->mode)),
         Size()},
        ", ");
    Lines lines = TitleLines(title, FindingsOfRanks(results_, nullptr).summary, options_);
    for (const bool target : {true, false}) {
      const std::string path = Clean(target ? compared_.target : compared_.golden);
      lines.push_back(fmt::format("  {}  {}", Pad((target ? "target"_t : "golden"_t).Shown(), 6),
                                  whole_ ? path : CutMiddle(path, width_ - 10)));
    }
    lines.emplace_back();
    return lines;
  }

  // "2 steps, 4 ranks"
  Message Size() const {
    std::set<int32_t> steps, ranks;
    for (const RankResult& r : results_) steps.insert(r.step), ranks.insert(r.rank);
    return Message::Joined({steps.size() > 1 ? "{} steps"_t(steps.size()) : Message(),
                            ranks.size() > 1 ? "{} ranks"_t(ranks.size()) : Message()},
                           ", ");
  }

  // "step 3, rank 1: target 7 calls, 30 values; golden 8 calls, 31 values"
  std::string Sizes(const Findings& found, const std::vector<RankPlace>& places,
                    bool say_step) const {
    Message where = "all pairs of dumps"_t;
    if (!places.empty()) {
      const RankResult& r = *places.front().result;
      where = Where(r.step, {r.rank}, say_step);
      if (where.empty()) where = "these dumps"_t;
    }
    const auto sizes = [&](bool dialects) {
      const auto size = [&](const Findings::Side& side) {
        return Message::Joined(
            {"{} calls"_t(side.calls), "{} values"_t(side.values),
             dialects ? side.dialect : std::string(), side.complete ? Message() : "CUT SHORT"_t},
            ", ");
      };
      return Clean(
          "of {}: target {}; golden {}"_t(where, size(found.target_side), size(found.golden_side))
              .Shown());
    };
    const std::string text = sizes(true);
    return whole_ || Columns(text) <= width_ ? text : sizes(false);
  }

  // One line for each verdict: "steps 0-2: equal  ranks 0-3". Steps in a row with the same verdicts
  // share their lines.
  Lines Verdicts() const {
    std::map<int32_t, std::map<int, std::vector<int32_t>>> of_steps;  // step, verdict -> ranks
    for (const RankResult& r : results_) {
      of_steps[r.step][r.failed.ok() ? static_cast<int>(r.summary.verdict) : kFailed].push_back(
          r.rank);
    }
    std::vector<std::pair<std::vector<int32_t>, std::map<int, std::vector<int32_t>>>> groups;
    const int32_t begin = FirstWrongStep(results_);
    for (auto& [step, verdicts] : of_steps) {
      // The step in which the error begins has a line of its own.
      const bool behind_the_first = !groups.empty() && groups.back().first.back() == begin;
      if (!groups.empty() && groups.back().second == verdicts && step != begin &&
          !behind_the_first) {
        groups.back().first.push_back(step);
      } else {
        groups.push_back({{step}, verdicts});
      }
    }
    constexpr size_t kMostLines = 9;
    size_t shown = 0, hidden = 0;
    Lines lines;
    for (const auto& [steps, verdicts] : groups) {
      const std::string label =
          of_steps.size() < 2
              ? ""
              : (steps.size() == 1 ? "step {}: "_t : "steps {}: "_t)(RankList(steps)).Shown();
      for (const auto& [verdict, ranks] : verdicts) {
        if (shown++ >= kMostLines) {
          ++hidden;
          continue;
        }
        const std::string word = Word(verdict).Shown();
        const std::string text =
            ranks.size() == 1 && ranks[0] < 0 ? "" : "  " + Ranks(ranks).Shown();
        const int word_width = text.empty() ? Columns(word) : 15;  // "within rounding"
        const bool later = begin >= 0 && steps.front() > begin &&
                           verdict == static_cast<int>(RunVerdict::kDiffers);
        const std::string inherited =
            later ? ", inherited from step {}"_t(begin).Shown() : std::string();
        const int room = width_ - 2 - Columns(label) - word_width - Columns(inherited);
        lines.push_back("  " + label +
                        Paint(verdict == kFailed ? kRed : ColorOf(static_cast<RunVerdict>(verdict)),
                              Pad(word, word_width)) +
                        (whole_ ? text : CutMiddle(text, room)) + inherited);
      }
    }
    if (hidden > 0) {
      lines.push_back("  " + "and {} more lines in the summary file"_t(hidden).Shown());
    }
    size_t failures = 0;
    for (const RankResult& r : results_) {
      if (r.failed.ok() || ++failures > 3) continue;
      Append(
          Fold(Message::Joined(
                   {r.rank < 0 ? "the dump"_t : "rank {}"_t(r.rank), r.failed.AsMessage()}, ": "),
               "    "),
          &lines);
    }
    return lines;
  }

  // "step 3, rank 1", without the parts that are not known.
  Message Where(int32_t step, const std::vector<int32_t>& ranks, bool say_step) const {
    constexpr int kMostColumns = 32;
    Message of_ranks;
    if (ranks.size() > 1 || ranks[0] >= 0) {
      of_ranks = Ranks(ranks);
      if (!whole_) of_ranks = CutMiddle(of_ranks.Shown(), kMostColumns);
    }
    return Message::Joined(
        {say_step && step >= 0 ? "step {}"_t(step) : Message(), std::move(of_ranks)}, ", ");
  }

  Lines Begins(const FindingsScreen& screen, const StepOrigins& step,
               const std::vector<RankPlace>& places, bool say_step) const {
    const RankPlace& place = places.front();
    FindingsScreen::Place known{.where = Where(step.step, place.ranks, say_step)};
    if (place.origin->in_exchange) known.exchange = DescribeExchange(*place.origin);
    known.travelled.push_back(DescribeStepBefore(results_, *place.result));
    constexpr int64_t kMostHops = 4;
    int64_t hops = 0;
    for (const RankHop& hop : step.found.hops) {
      if (hop.from.empty() || ++hops > kMostHops) continue;
      known.travelled.push_back(
          (hops == 1 ? "it travelled: {}"_t : "then: {}"_t)(DescribeHop(hop)));
    }
    if (hops > kMostHops) known.travelled.push_back("and in {} more exchanges"_t(hops - kMostHops));
    known.travelled.push_back(DescribeOutside(step, results_));
    if (const std::optional<Drift> drift = FindDrift(results_);
        drift && !drift->IsSaidBy(*place.result))
      known.travelled.push_back(DescribeDrift(*drift));
    for (size_t i = 1; i < std::min<size_t>(places.size(), 4); ++i) {
      known.travelled.push_back(
          "also begins on {}: {}"_t(Ranks(places[i].ranks), places[i].result->first_name));
    }
    if (places.size() > 4) known.travelled.push_back("and in {} more places"_t(places.size() - 4));
    std::erase_if(known.travelled, [](const Message& text) { return text.empty(); });
    return screen.Finding(known);
  }

  // Why there is no first divergence, unless CallsMadeOtherwise says it.
  Lines AgreeOrNot(const FindingsScreen& screen) const {
    const bool otherwise = std::any_of(results_.begin(), results_.end(),
                                       [](const RankResult& r) { return !r.otherwise.empty(); });
    return AnyCompared() && !otherwise ? screen.Finding() : Lines();
  }

  // The first dumps before step `end` in which all numbers agree and the calls are not the same.
  Lines CallsMadeOtherwise(int32_t end, bool say_step) const {
    for (const RankResult& r : results_) {
      if (r.otherwise.empty() || r.step >= end) continue;
      const int64_t calls = r.summary.calls_compared_nowhere;
      const Message what =
          calls == 0
              ? "all results agree, but the two runs did not make the same calls: {}"_t(r.otherwise)
          : calls == 1
              ? "all values with a partner agree, but the results of 1 call without a partner are "
                "not compared, so an error in them would not show: {}"_t(r.otherwise)
              : "all values with a partner agree, but the results of {} calls without a partner "
                "are not compared, so an error in them would not show: {}"_t(calls, r.otherwise);
      return Fold(Message::Joined({Where(r.step, {r.rank}, say_step), what}, ", "));
    }
    return {};
  }

  // `verdict`: a RunVerdict, or kFailed for a pair that could not be compared.
  static Message Word(int verdict) {
    const Message words[] = {"equal"_t,   "within rounding"_t, "other structure"_t,
                             "unknown"_t, "differs"_t,         "FAILED"_t};
    return words[verdict];
  }

  static constexpr int kFailed = 5;
  std::span<const RankResult> results_;
  const RanksCompared& compared_;
  const TerminalOptions& options_;
  const int width_;
  const bool whole_;
};

}  // namespace

std::string RanksReport(std::span<const RankResult> results, const RanksCompared& compared,
                        const TerminalOptions& options) {
  return Screen(results, compared, options).Draw();
}

Message DescribeHop(const RankHop& hop) {
  return hop.source_line.empty()
             ? "{} brings it from {} to {}"_t(hop.name, Ranks(hop.from), Ranks(hop.to))
             : "{} brings it from {} to {} ({})"_t(hop.name, Ranks(hop.from), Ranks(hop.to),
                                                   hop.source_line);
}

Message DescribeOutside(const StepOrigins& step, std::span<const RankResult> results) {
  if (step.found.from_outside.empty()) return {};
  std::vector<int32_t> ranks;
  for (const RankOrigin& o : step.found.from_outside)
    ranks.push_back(results[step.results[o.trace]].rank);
  std::sort(ranks.begin(), ranks.end());
  return "{} got wrong numbers in a way that was not recorded (as DDP exchanges gradients), at "
         "{}"_t(Ranks(ranks), results[step.results[step.found.from_outside[0].trace]].first_name);
}

Message DescribeExchange(const RankOrigin& origin) {
  if (origin.not_known.empty())
    return "every rank sent correct numbers to this exchange: the error is in the exchange"_t;
  return "this exchange brought the wrong number; the values that {} gave are not known"_t(
      Ranks(origin.not_known));
}

}  // namespace msprobe::compare
