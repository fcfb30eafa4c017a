#include "engine/compare/explain/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "engine/compare/judge/judge.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

// Values without a partner that one run alone has although the other was not killed: its calls are
// made differently. Results of paired calls do not count as long as they are open.
int64_t ValuesOfOtherStructure(const Comparison& c) {
  int64_t values = 0;
  for (const RecordPair& pair : c.pairs) {
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c.rows[i];
      if (c.measures[i].reason != Reason::kNoPartner) continue;
      const bool other_was_killed = !(row.target >= 0 ? c.golden : c.target).complete;
      values += !other_was_killed;
    }
  }
  return values - (c.decided ? c.decided->open_results : 0);
}

RunVerdict VerdictOf(const Comparison& c, Summary* s) {
  const int64_t unknown = s->rows[static_cast<int>(RowVerdict::kUnknown)] - s->neutral_rows;
  const bool wrong = c.decided && c.decided->differs;
  if (wrong || s->rows[static_cast<int>(RowVerdict::kDiffers)] > 0) return RunVerdict::kDiffers;
  if (s->compared == 0 || ComparedTooLittle(*s)) return RunVerdict::kUnknown;
  // A run that was killed may have made the missing calls later.
  const bool other_calls = s->other_forms > 0 || s->without_effect > 0 || s->compiled_calls > 0 ||
                           (s->target_only_calls > 0 && c.golden.complete) ||
                           (s->golden_only_calls > 0 && c.target.complete);
  if (unknown > 0 || other_calls) {
    // A table of results does not tell what reaches a result of the step.
    if (c.decided) {
      s->calls_compared_nowhere = static_cast<int64_t>(c.decided->compared_nowhere.size());
      if (s->calls_compared_nowhere > 0) s->first_compared_nowhere = c.decided->compared_nowhere[0];
    }
    if (s->calls_compared_nowhere > 0) return RunVerdict::kDiffers;
    return unknown > ValuesOfOtherStructure(c) ? RunVerdict::kUnknown : RunVerdict::kStructure;
  }
  return s->rows[static_cast<int>(RowVerdict::kNoise)] > 0 ? RunVerdict::kNoise
                                                           : RunVerdict::kEqual;
}

}  // namespace

Summary Summarize(const Comparison& c) {
  Summary s;
  for (size_t i = 0; i < c.measures.size(); ++i) {
    const Measure& m = c.measures[i];
    ++s.rows[static_cast<int>(m.verdict)];
    s.neutral_rows += IsNeutral(m);
    s.compared += m.verdict != RowVerdict::kUnknown;
    s.other_forms += m.reason == Reason::kOtherForm || m.reason == Reason::kRewritten;
    s.without_effect += m.reason == Reason::kWithoutEffect;
    s.too_wide += m.reason == Reason::kTooWide;
    if (!IsNeutral(m)) {
      s.target_values += c.rows[i].target >= 0;
      s.golden_values += c.rows[i].golden >= 0;
    }
    s.target_only_rows += c.rows[i].golden < 0;
    s.golden_only_rows += c.rows[i].target < 0;
    s.unreadable_rows += m.reason == Reason::kNoFile || m.reason == Reason::kBadFile;
  }
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    ++s.calls[static_cast<int>(c.classes[p])];
    const bool compiled = c.IsCompiled(static_cast<int32_t>(p));
    s.compiled_calls += compiled;
    s.target_only_calls += c.pairs[p].golden < 0 && !compiled;
    s.golden_only_calls += c.pairs[p].target < 0 && !compiled;
    s.aligned_calls += c.pairs[p].match == Match::kAligned;
  }
  s.verdict = VerdictOf(c, &s);
  return s;
}

std::string_view RunVerdictName(RunVerdict verdict) {
  static constexpr std::string_view kNames[] = {"equal", "noise", "structure", "unknown",
                                                "differs"};
  return kNames[static_cast<int>(verdict)];
}

Message WordOf(RunVerdict verdict) {
  switch (verdict) {
    case RunVerdict::kEqual:
      return "equal"_t;
    case RunVerdict::kNoise:
      return "noise"_t;
    case RunVerdict::kStructure:
      return "structure"_t;
    case RunVerdict::kDiffers:
      return "differs"_t;
    case RunVerdict::kUnknown:
      break;
  }
  return "unknown"_t;
}

bool ComparedTooLittle(const Summary& s) {
  constexpr int64_t kLeastPart = 10;  // one in ten
  return s.compared * kLeastPart < std::max(s.target_values, s.golden_values);
}

Message DescribeCompared(const Summary& s) {
  const int64_t all = std::max(s.target_values, s.golden_values);
  return s.compared == all ? Message() : "{} of {} values compared"_t(s.compared, all);
}

bool Agrees(RunVerdict verdict) {
  return verdict == RunVerdict::kEqual || verdict == RunVerdict::kNoise;
}

Message WhyNothingWasJudged(const Comparison& c) {
  if (c.target.records.empty() || c.golden.records.empty()) {
    return "a dump without records says nothing about a run"_t;
  }
  const bool judged = std::any_of(c.measures.begin(), c.measures.end(), [](const Measure& m) {
    return m.verdict != RowVerdict::kUnknown;
  });
  return judged ? Message() : "no value has a partner and a number on both sides"_t;
}

Status CheckSomethingWasJudged(const Comparison& c) {
  Message why = WhyNothingWasJudged(c);
  if (why.empty()) return Status::Ok();
  const bool no_target = c.target.records.empty(), no_golden = c.golden.records.empty();
  const std::string_view target = LevelName(c.target.level), golden = LevelName(c.golden.level);
  Message hint = "compare two runs of one program; -cm, -am and -dm pair calls of other names"_t;
  if (no_target && no_golden) {
    hint = "neither {} nor {} has a record; record both runs again"_t(c.target.path, c.golden.path);
  } else if (no_target || no_golden) {
    hint = "{} has no records; record that run again"_t(no_target ? c.target.path : c.golden.path);
  } else if (target != golden && !target.empty() && !golden.empty()) {
    hint =
        "the target was recorded at level {}, the golden at level {}; record both at one level"_t(
            target, golden);
  }
  if (no_target || no_golden) {
    return InvalidArgument("nothing was compared: {}"_t(std::move(why))).Hint(std::move(hint));
  }
  return InvalidArgument("nothing of {} and {} was compared: {}"_t(c.target.path, c.golden.path,
                                                                   std::move(why)))
      .Hint(std::move(hint));
}

}  // namespace msprobe::compare
