#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
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
  std::string text =
      fmt::format("**First divergence**{}: {} (confidence {:.0f}%)\n\n",
                  place.empty() ? "" : ", " + place, Code(r.first_name), 100 * f.confidence);
  if (!f.module.empty()) text += "- in " + Code(f.module) + "\n";
  if (!f.source_line.empty()) text += "- " + Code(f.source_line) + "\n";
  if (!f.caller_line.empty()) text += "- called from " + Code(f.caller_line) + "\n";
  text += "- " + Text(f.why) + "\n";
  if (!f.advice.empty()) text += "- next: " + Text(f.advice) + "\n";
  if (!r.first_bits.empty()) text += "- " + Text(r.first_bits) + "\n";
  return text;
}

// Conditions and counts of the pair of dumps that the report is about, or of all pairs.
std::string Facts(const Findings& found) {
  std::string text = "\n";
  for (const auto& facts : {ConditionsOf(found), CountsOf(found)}) {
    for (const LabelledText& fact : facts)
      text += fmt::format("- {}: {}\n", fact.label, Text(fact.text));
  }
  for (const std::string& sentence : found.not_observed)
    text += fmt::format("- not observed: {}\n", Text(sentence));
  return text;
}

std::string Calls(const RankResult& r) {
  if (r.details.wrong.empty()) return "";
  std::string text = "\n| call | class | what | where |\n| --- | --- | --- | --- |\n";
  const size_t shown = std::min(kMostCalls, r.details.wrong.size());
  for (size_t i = 0; i < shown; ++i) {
    const WrongCall& w = r.details.wrong[i];
    text += fmt::format("| {} | {} | {} | {} |\n", Code(w.name), ClassName(w.call_class),
                        Text(w.what), Code(w.source_line));
  }
  const int64_t all = r.summary.calls[2] + r.summary.calls[3] + r.summary.target_only_calls +
                      r.summary.golden_only_calls;
  if (all > static_cast<int64_t>(shown)) {
    text += fmt::format("\nand {} more calls\n", all - static_cast<int64_t>(shown));
  }
  return text;
}

std::string Table(std::span<const RankResult> results) {
  std::string text =
      "\n| | verdict | first divergence | equal | within rounding | introduced | inherited | "
      "unknown |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  const int32_t first_wrong_step = FirstWrongStep(results);
  for (size_t i = 0; i < std::min(kMostRanks, results.size()); ++i) {
    const RankResult& r = results[i];
    const std::string inherited = InheritedFrom(r, first_wrong_step);
    if (!r.failed.ok()) {
      text +=
          fmt::format("| {} | **failed** | {} | | | | | |\n", Place(r), Text(r.failed.message()));
      continue;
    }
    text += fmt::format("| {} | {}{}{} | {}", Place(r), RunVerdictName(r.summary.verdict),
                        inherited.empty() ? "" : ", ", inherited, Code(r.first_name));
    for (const int64_t calls : r.summary.calls) text += fmt::format(" | {}", calls);
    text += " |\n";
  }
  if (results.size() > kMostRanks) {
    text += fmt::format("\nand {} more\n", results.size() - kMostRanks);
  }
  return text;
}

}  // namespace

std::string MarkdownReport(std::span<const RankResult> results, const RanksCompared& compared) {
  const std::string part = DescribeCompared(FindingsOfRanks(results, nullptr).summary);
  std::string text = fmt::format("## msprobe compare: {}{}\n\ntarget {}, golden {}\n\n",
                                 Headline(VerdictOver(results)), part.empty() ? "" : ", " + part,
                                 Code(compared.target), Code(compared.golden));
  const RankResult* worst = nullptr;
  for (const StepOrigins& step : OriginsOfSteps(results)) {
    if (step.found.origins.empty()) continue;
    worst = &results[step.results[step.found.origins[0].trace]];
    text += Begins(*worst);
    for (const RankHop& hop : step.found.hops) {
      if (!hop.from.empty()) text += "- travelled: " + Text(DescribeHop(hop)) + "\n";
    }
    if (const std::string outside = DescribeOutside(step, results); !outside.empty()) {
      text += "- " + Text(outside) + "\n";
    }
    break;
  }
  for (const RankResult& r : results) {
    for (const FailHit& hit : r.hits) {
      const std::string place = Place(r);
      text += fmt::format("- **fail-on** {}{}\n", place.empty() ? "" : place + ": ",
                          Text(DescribeHit(hit)));
    }
  }
  if (std::any_of(results.begin(), results.end(),
                  [](const RankResult& r) { return r.failed.ok(); })) {
    text += Facts(FindingsOfRanks(results, worst));
  }
  text += Table(results);
  if (worst != nullptr) text += Calls(*worst);
  for (const std::string& what : compared.left_out) text += "\nnot compared: " + Text(what) + "\n";
  return text;
}

}  // namespace msprobe::compare
