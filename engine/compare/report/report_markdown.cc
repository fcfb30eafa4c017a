#include <fmt/format.h>

#include <algorithm>

#include "engine/base/language.h"
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
std::string Said(std::string_view english) { return Text(Translated(std::string(english))); }

std::string Code(std::string_view text) {
  std::string valid, out;
  AppendValidUtf8(&valid, text);
  for (const char c : valid) {
    out += c == '`' ? '\'' : static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    if (c == '|') out.insert(out.size() - 1, "\\");
  }
  return out.empty() ? "" : "`" + out + "`";
}

std::string Place(const RankResult& r) {
  std::string text = r.step >= 0 ? fmt::format("step {}", r.step) : "";
  if (r.rank >= 0) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", r.rank);
  return text;
}

std::string Begins(const RankResult& r) {
  const FirstDivergence& f = r.first;
  const std::string place = Place(r);
  std::string text = fmt::format("**{}**{}: {} ({})\n\n", Said("First divergence"),
                                 place.empty() ? "" : ", " + place, Code(r.first_name),
                                 Said(fmt::format("confidence {:.0f}%", 100 * f.confidence)));
  if (!f.module.empty()) text += "- " + TranslatedAround("in {}", Code(f.module)) + "\n";
  if (!f.source_line.empty()) text += "- " + Code(f.source_line) + "\n";
  if (!f.caller_line.empty())
    text += "- " + TranslatedAround("called from {}", Code(f.caller_line)) + "\n";
  if (!f.golden_line.empty())
    text += "- " + TranslatedAround("in the golden: {}", Code(f.golden_line)) + "\n";
  text += "- " + Said(f.why) + "\n";
  if (!r.first_bits.empty()) text += "- " + Said(r.first_bits) + "\n";
  if (!f.advice.empty()) text += "- " + Said("next") + ": " + Said(f.advice) + "\n";
  return text;
}

// The first two lines of a table.
std::string Heads(std::initializer_list<std::string_view> columns) {
  std::string heads = "\n|", rule = "\n|";
  for (const std::string_view column : columns) {
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
  for (const std::string& sentence : found.not_observed)
    text += fmt::format("- {}: {}\n", Said("not observed"), Said(sentence));
  return text;
}

std::string Calls(const RankResult& r) {
  if (r.details.wrong.empty()) return "";
  std::string text = Heads({"call", "class", "what", "where"});
  const size_t shown = std::min(kMostCalls, r.details.wrong.size());
  for (size_t i = 0; i < shown; ++i) {
    const WrongCall& w = r.details.wrong[i];
    text += fmt::format("| {} | {} | {} | {} |\n", Code(w.name), Said(ClassName(w.call_class)),
                        Said(w.what), Code(w.source_line));
  }
  const int64_t all = r.summary.calls[2] + r.summary.calls[3] + r.summary.target_only_calls +
                      r.summary.golden_only_calls;
  if (all > static_cast<int64_t>(shown)) {
    text += "\n" + Said(fmt::format("and {} more calls", all - static_cast<int64_t>(shown))) + "\n";
  }
  return text;
}

std::string Table(std::span<const RankResult> results) {
  std::string text = Heads({"", "verdict", "first divergence", "equal", "within rounding",
                            "introduced", "inherited", "unknown"});
  const int32_t first_wrong_step = FirstWrongStep(results);
  for (size_t i = 0; i < std::min(kMostRanks, results.size()); ++i) {
    const RankResult& r = results[i];
    const std::string inherited = InheritedFrom(r, first_wrong_step);
    if (!r.failed.ok()) {
      text += fmt::format("| {} | **{}** | {} | | | | | |\n", Place(r), Said("failed"),
                          Text(r.failed.ShownMessage()));
      continue;
    }
    text += fmt::format("| {} | {}{}{} | {}", Place(r), Said(RunVerdictName(r.summary.verdict)),
                        inherited.empty() ? "" : ", ", Said(inherited), Code(r.first_name));
    for (const int64_t calls : r.summary.calls) text += fmt::format(" | {}", calls);
    text += " |\n";
  }
  if (results.size() > kMostRanks) {
    text += "\n" + Said(fmt::format("and {} more", results.size() - kMostRanks)) + "\n";
  }
  return text;
}

}  // namespace

std::string MarkdownReport(std::span<const RankResult> results, const RanksCompared& compared) {
  const std::string part = DescribeCompared(FindingsOfRanks(results, nullptr).summary);
  std::string text =
      fmt::format("## msprobe compare: {}{}\n\n{} {}, {} {}\n\n",
                  Said(Headline(VerdictOver(results))), part.empty() ? "" : Said(", " + part),
                  Said("target"), Code(compared.target), Said("golden"), Code(compared.golden));
  const RankResult* worst = nullptr;
  for (const StepOrigins& step : OriginsOfSteps(results)) {
    if (step.found.origins.empty()) continue;
    worst = &results[step.results[step.found.origins[0].trace]];
    text += Begins(*worst);
    for (const RankHop& hop : step.found.hops) {
      if (!hop.from.empty()) text += "- " + Said("travelled: " + DescribeHop(hop)) + "\n";
    }
    if (const std::string outside = DescribeOutside(step, results); !outside.empty()) {
      text += "- " + Said(outside) + "\n";
    }
    if (const std::optional<Drift> drift = FindDrift(results); drift && !drift->IsSaidBy(*worst))
      text += "- " + Said(DescribeDrift(*drift)) + "\n";
    break;
  }
  for (const RankResult& r : results) {
    for (const FailHit& hit : r.hits) {
      const std::string place = Place(r);
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
  for (const std::string& what : compared.left_out)
    text += "\n" + Said("not compared: " + what) + "\n";
  return text;
}

}  // namespace msprobe::compare
