#include <fmt/format.h>

#include <algorithm>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "engine/compare/ranks/rank_findings.h"
#include "engine/compare/report/report_ci.h"
#include "engine/compare/report/terminal_words.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMostRanks = 64, kMostCalls = 20;

// Text of a dump for the cell of a table: on one line, and nothing in it is markup.
std::string Text(std::string_view text) {
  std::string valid, out;
  AppendValidUtf8(&valid, text);
  for (const char c : valid) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else if (c == '<') {
      out += "&lt;";
    } else {
      if (std::string_view("\\`*_[]|~").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// A sentence of ours in the language of the reader.
std::string Said(const Message& text) { return Text(text.Shown()); }

std::string Code(std::string_view text) {
  std::string valid, out;
  AppendValidUtf8(&valid, text);
  for (const char c : valid) {
    out += c == '`' ? '\'' : static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    if (c == '|') out.insert(out.size() - 1, "\\");
  }
  return out.empty() ? "" : "`" + out + "`";
}

Message Place(const RankResult& r) {
  return Message::Joined({r.step >= 0 ? "step {}"_t(r.step) : Message(),
                          r.rank >= 0 ? "rank {}"_t(r.rank) : Message()},
                         ", ");
}

std::string Begins(const RankResult& r) {
  const FirstDivergence& f = r.first;
  const std::string place = Place(r).Shown();
  std::string text = fmt::format("**{}**{}: {} ({})\n\n", Said("First divergence"_t),
                                 place.empty() ? "" : ", " + place, Code(r.first_name.Shown()),
                                 Said("confidence {:.0f}%"_t(100 * f.confidence)));
  if (!f.module.empty()) text += "- " + "in {}"_t(Code(f.module)).Shown() + "\n";
  if (!f.source_line.empty()) text += "- " + Code(f.source_line) + "\n";
  if (!f.caller_line.empty()) text += "- " + "called from {}"_t(Code(f.caller_line)).Shown() + "\n";
  if (!f.golden_line.empty())
    text += "- " + "in the golden: {}"_t(Code(f.golden_line)).Shown() + "\n";
  text += "- " + Said(f.why) + "\n";
  if (!r.first_bits.empty()) text += "- " + Said(r.first_bits) + "\n";
  if (!f.advice.empty()) text += "- " + Said("next: {}"_t(f.advice)) + "\n";
  return text;
}

// The first two lines of a table.
std::string Heads(std::initializer_list<Message> columns) {
  std::string heads = "\n|", rule = "\n|";
  for (const Message& column : columns) {
    heads += column.empty() ? " |" : " " + Said(column) + " |";
    rule += " --- |";
  }
  return heads + rule + "\n";
}

// Conditions and counts of the pair of dumps that the report is about, or of all pairs.
std::string Facts(const Findings& found) {
  std::string text = "\n";
  for (const auto& facts : {ConditionsOf(found), CountsOf(found)}) {
    for (const LabelledText& fact : facts)
      text += fmt::format("- {}: {}\n", Said(fact.label), Said(fact.text));
  }
  for (const Message& sentence : found.not_observed)
    text += fmt::format("- {}: {}\n", Said("not observed"_t), Said(sentence));
  return text;
}

std::string Calls(const RankResult& r) {
  if (r.details.wrong.empty()) return "";
  std::string text = Heads({"call"_t, "class"_t, "what"_t, "where"_t});
  const size_t shown = std::min(kMostCalls, r.details.wrong.size());
  for (size_t i = 0; i < shown; ++i) {
    const WrongCall& w = r.details.wrong[i];
    text += fmt::format("| {} | {} | {} | {} |\n", Code(w.name), Said(WordOf(w.call_class)),
                        Said(w.what), Code(w.source_line));
  }
  const int64_t all = r.summary.calls[2] + r.summary.calls[3] + r.summary.target_only_calls +
                      r.summary.golden_only_calls;
  if (all > static_cast<int64_t>(shown)) {
    text += "\n" + Said("and {} more calls"_t(all - static_cast<int64_t>(shown))) + "\n";
  }
  return text;
}

std::string Table(std::span<const RankResult> results) {
  std::string text = Heads({{},
                            "verdict"_t,
                            "first divergence"_t,
                            "equal"_t,
                            "within rounding"_t,
                            "introduced"_t,
                            "inherited"_t,
                            "unknown"_t});
  const int32_t first_wrong_step = FirstWrongStep(results);
  for (size_t i = 0; i < std::min(kMostRanks, results.size()); ++i) {
    const RankResult& r = results[i];
    const Message inherited = InheritedFrom(r, first_wrong_step);
    if (!r.failed.ok()) {
      text += fmt::format("| {} | **{}** | {} | | | | | |\n", Place(r).Shown(), Said("failed"_t),
                          Text(r.failed.ShownMessage()));
      continue;
    }
    text += fmt::format("| {} | {} | {}", Place(r).Shown(),
                        Said(Message::Joined({WordOf(r.summary.verdict), inherited}, ", ")),
                        Code(r.first_name.Shown()));
    for (const int64_t calls : r.summary.calls) text += fmt::format(" | {}", calls);
    text += " |\n";
  }
  if (results.size() > kMostRanks) {
    text += "\n" + Said("and {} more"_t(results.size() - kMostRanks)) + "\n";
  }
  return text;
}

}  // namespace

std::string MarkdownReport(std::span<const RankResult> results, const RanksCompared& compared) {
  const Message verdict = Message::Joined(
      {Headline(VerdictOver(results)), DescribeCompared(FindingsOfRanks(results, nullptr).summary)},
      ", ");
  std::string text =
      fmt::format("## msprobe compare: {}\n\n{} {}, {} {}\n\n", Said(verdict), Said("target"_t),
                  Code(compared.target), Said("golden"_t), Code(compared.golden));
  const RankResult* worst = nullptr;
  for (const StepOrigins& step : OriginsOfSteps(results)) {
    if (step.found.origins.empty()) continue;
    worst = &results[step.results[step.found.origins[0].trace]];
    text += Begins(*worst);
    for (const RankHop& hop : step.found.hops) {
      if (!hop.from.empty()) text += "- " + Said("travelled: {}"_t(DescribeHop(hop))) + "\n";
    }
    if (const Message outside = DescribeOutside(step, results); !outside.empty()) {
      text += "- " + Said(outside) + "\n";
    }
    if (const std::optional<Drift> drift = FindDrift(results); drift && !drift->IsSaidBy(*worst))
      text += "- " + Said(DescribeDrift(*drift)) + "\n";
    break;
  }
  for (const RankResult& r : results) {
    for (const FailHit& hit : r.hits) {
      const std::string place = Place(r).Shown();
      text += fmt::format("- **fail-on** {}{}\n", place.empty() ? "" : place + ": ",
                          Said(DescribeHit(hit)));
    }
  }
  if (std::any_of(results.begin(), results.end(),
                  [](const RankResult& r) { return r.failed.ok(); })) {
    text += Facts(FindingsOfRanks(results, worst));
  }
  text += Table(results);
  if (worst != nullptr) text += Calls(*worst);
  for (const Message& what : compared.left_out)
    text += "\n" + Said("not compared: {}"_t(what)) + "\n";
  return text;
}

}  // namespace msprobe::compare
