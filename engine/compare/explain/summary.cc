#include "engine/compare/explain/summary.h"

#include <fmt/format.h>

#include <string>

#include "engine/compare/judge/judge.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

int64_t JudgedRows(const Summary& s) { return s.rows[0] + s.rows[1] + s.rows[2]; }

}  // namespace

Summary Summarize(const Comparison& c) {
  Summary s;
  for (size_t i = 0; i < c.measures.size(); ++i) {
    const Measure& m = c.measures[i];
    ++s.rows[static_cast<int>(m.verdict)];
    s.neutral_rows += IsNeutral(m);
    s.target_only_rows += c.rows[i].golden < 0;
    s.golden_only_rows += c.rows[i].target < 0;
    s.unreadable_rows += m.reason == Reason::kNoFile || m.reason == Reason::kBadFile;
  }
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    ++s.calls[static_cast<int>(c.classes[p])];
    s.target_only_calls += c.pairs[p].golden < 0;
    s.golden_only_calls += c.pairs[p].target < 0;
    s.aligned_calls += c.pairs[p].match == Match::kAligned;
  }
  const int64_t judged = JudgedRows(s);
  // A call that one run did not make is a difference. A run that was killed may have made it later.
  const bool other_calls = (s.target_only_calls > 0 && c.golden.complete) ||
                           (s.golden_only_calls > 0 && c.target.complete);
  if (s.rows[static_cast<int>(RowVerdict::kDiffers)] > 0 || (other_calls && judged > 0)) {
    s.verdict = RowVerdict::kDiffers;
  } else if (judged == 0 || s.rows[static_cast<int>(RowVerdict::kUnknown)] > s.neutral_rows) {
    s.verdict = RowVerdict::kUnknown;
  } else {
    s.verdict =
        s.rows[static_cast<int>(RowVerdict::kNoise)] > 0 ? RowVerdict::kNoise : RowVerdict::kEqual;
  }
  return s;
}

std::string_view WhyNothingWasJudged(const Comparison& c, const Summary& s) {
  if (c.target.records.empty() || c.golden.records.empty()) {
    return "a dump without records says nothing about a run";
  }
  return JudgedRows(s) == 0 ? "no value has a partner and a number on both sides" : "";
}

Status CheckSomethingWasJudged(const Comparison& c, const Summary& s) {
  const std::string_view why = WhyNothingWasJudged(c, s);
  if (why.empty()) return Status::Ok();
  const bool no_target = c.target.records.empty(), no_golden = c.golden.records.empty();
  const std::string_view target = LevelName(c.target.level), golden = LevelName(c.golden.level);
  std::string hint = "compare two runs of one program; -cm, -am and -dm pair calls of other names";
  if (no_target && no_golden) {
    hint = fmt::format("neither {} nor {} has a record; record both runs again", c.target.path,
                       c.golden.path);
  } else if (no_target || no_golden) {
    hint = fmt::format("{} has no records; record that run again",
                       no_target ? c.target.path : c.golden.path);
  } else if (target != golden && !target.empty() && !golden.empty()) {
    hint = fmt::format(
        "the target was recorded at level {}, the golden at level {}; record both at one level",
        target, golden);
  }
  return InvalidArgument(fmt::format("nothing was compared: {}", why)).Hint(hint);
}

}  // namespace msprobe::compare
