#include "engine/results/finding_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/base/file.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/compare/report/report_json.h"
#include "engine/formats/text/json.h"
#include "engine/results/comparison_builder.h"

namespace msprobe::results {
namespace {

using compare::FirstDivergence;
using formats::JsonValue;
using Kind = JsonValue::Kind;

// Members that may be missing: a newer document may have others.
std::string_view Text(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.Find(key);
  return value != nullptr && (value->kind == Kind::kString || value->kind == Kind::kNumber)
             ? std::string_view(value->text)
             : std::string_view();
}
double NumberOf(const JsonValue& object, std::string_view key) {
  return formats::JsonNumber(Text(object, key));
}
int64_t Integer(const JsonValue& object, std::string_view key, int64_t otherwise = 0) {
  const std::string_view text = Text(object, key);
  int64_t value = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : otherwise;
}

template <typename Word, typename NameOf>
Word WordOr(std::string_view text, int words, NameOf name_of, Word otherwise) {
  for (int i = 0; i < words; ++i) {
    if (name_of(static_cast<Word>(i)) == text) return static_cast<Word>(i);
  }
  return otherwise;
}

compare::CallClass ClassIn(const JsonValue& divergence) {
  return WordOr(Text(divergence, "class"), 5, &compare::ClassName, compare::CallClass::kUnknown);
}

ResultValue SideOf(const JsonValue& worst, std::string_view side, std::string_view name) {
  const auto of_side = [&](std::string_view what) {
    return Text(worst, fmt::format("{}_{}", side, what));
  };
  const JsonValue& statistics = worst.Member("statistics");
  const auto statistic = [&](std::string_view key) { return Text(statistics.Member(key), side); };
  const JsonValue& counts = worst.Member(fmt::format("{}_nonfinite", side));
  return {.name = name,
          .dtype = of_side("dtype"),
          .shape = of_side("shape"),
          .max = statistic("max"),
          .min = statistic("min"),
          .mean = statistic("mean"),
          .norm = statistic("norm"),
          .counts = {Integer(counts, "nan", -1), Integer(counts, "pos_inf", -1),
                     Integer(counts, "neg_inf", -1)}};
}

// Adds a call of the document. Of its values only the worst one is there.
void AddCall(const JsonValue& divergence, ComparisonBuilder* builder) {
  const JsonValue& worst = divergence.Member("worst");
  const auto name = [&](std::string_view side) {
    const std::string_view row = Text(worst, fmt::format("{}_row", side));
    return row.empty() ? Text(divergence, fmt::format("{}_name", side)) : row;
  };
  ResultRow row{.target = SideOf(worst, "target", name("target")),
                .golden = SideOf(worst, "golden", name("golden"))};
  row.verdict =
      WordOr(Text(worst, "verdict"), 4, &compare::VerdictName, compare::RowVerdict::kUnknown);
  // A call that only one run has is named, and has no class among the calls.
  const bool paired = !row.target.name.empty() && !row.golden.name.empty();
  row.call_class = paired ? ClassIn(divergence) : compare::CallClass::kUnknown;
  row.severity = NumberOf(worst, "severity");
  row.reason = Text(worst, "reason");
  if (const JsonValue& e = worst.Member("elements"); e.kind == Kind::kObject) {
    row.diff = kernels::Diff{.count = Integer(e, "count"),
                             .unequal = Integer(e, "unequal"),
                             .cosine = NumberOf(e, "cosine"),
                             .relative_l2 = NumberOf(e, "relative_l2"),
                             .max_abs_error = NumberOf(e, "max_abs_error"),
                             .max_rel_error = NumberOf(e, "max_rel_error"),
                             .rmse = NumberOf(e, "rmse"),
                             .max_ulp = Integer(e, "max_ulp", -1),
                             .worst_index = Integer(e, "worst_index", -1),
                             .worst_target = NumberOf(e, "worst_target"),
                             .worst_golden = NumberOf(e, "worst_golden")};
  }
  builder->Add(row);
}

FirstDivergence DivergenceOf(const JsonValue& object, int32_t pair) {
  FirstDivergence f;
  f.pair = pair;
  f.call_class = ClassIn(object);
  f.confidence = NumberOf(object, "confidence");
  f.module = Text(object, "module");
  f.source_line = Text(object, "source_line");
  f.caller_line = Text(object, "caller_line");
  f.golden_line = Text(object, "golden_line");
  f.why = Text(object, "why");
  f.advice = Text(object, "advice");
  return f;
}

void FillSummary(const JsonValue& document, compare::Summary* s) {
  using compare::RunVerdict;
  *s = {};
  s->verdict = WordOr(Text(document, "verdict"), 5, &compare::RunVerdictName, RunVerdict::kUnknown);
  const JsonValue& rows = document.Member("rows");
  for (int i = 0; i < 4; ++i)
    s->rows[i] = Integer(rows, compare::VerdictName(static_cast<compare::RowVerdict>(i)));
  const JsonValue& calls = document.Member("calls");
  for (int i = 0; i < 5; ++i)
    s->calls[i] = Integer(calls, compare::ClassName(static_cast<compare::CallClass>(i)));
  const JsonValue& compared = document.Member("compared");
  s->compared = Integer(compared, "values");
  s->target_values = Integer(compared, "target"), s->golden_values = Integer(compared, "golden");
  s->neutral_rows = Integer(rows, "nothing_recorded");
  s->other_forms = Integer(rows, "other_form");
  s->without_effect = Integer(rows, "without_effect");
  s->too_wide = Integer(rows, "too_wide");
  s->target_only_rows = Integer(rows, "target_only");
  s->golden_only_rows = Integer(rows, "golden_only");
  s->unreadable_rows = Integer(rows, "unreadable");
  s->target_only_calls = Integer(calls, "target_only");
  s->golden_only_calls = Integer(calls, "golden_only");
  s->compiled_calls = Integer(calls, "compiled");
  s->aligned_calls = Integer(calls, "aligned");
  s->calls_compared_nowhere = Integer(calls, "compared_nowhere");
}

void FillSide(const JsonValue& side, compare::Findings::Side* out) {
  out->dump = Text(side, "path");
  out->dialect = Text(side, "dialect");
  out->calls = Integer(side, "calls"), out->values = Integer(side, "rows");
  out->complete = side.Member("complete").boolean;
}

// A document of an earlier version has no such sentences: what its calls tell stays.
void FillSentences(const JsonValue& document, compare::RankResult* r) {
  const bool mindspore[] = {Text(document.Member("target"), "framework") == "mindspore",
                            Text(document.Member("golden"), "framework") == "mindspore"};
  r->two_frameworks = mindspore[0] != mindspore[1];
  const JsonValue& said = document.Member("sentences");
  r->not_judged = Text(said, "not_judged");
  if (said.kind != Kind::kObject) return;
  r->first_bits = Text(said, "first_bits");
  r->rewrites = Text(said, "rewrites");
  r->wrong_region = Text(said, "wrong_region");
  r->equal = Text(said, "equal") == "equal" ? "equal"_t : "bit-equal"_t;
  r->largest_noise = NumberOf(said, "largest_noise");
  r->why_largest_noise = Text(said, "why_largest_noise");
  r->other_arguments = Text(said, "other_arguments");
  r->unmatched_calls = Text(said, "unmatched_calls");
  r->compared_nowhere = Text(said, "compared_nowhere");
  r->otherwise = compare::DescribeOtherwise(*r);
}

// What the report of several steps says of this one. A document of one step says nothing.
void CountStep(const JsonValue& document, compare::RankResult* result) {
  const int64_t rounding = Integer(document, "rounding_of_step", -1);
  if (rounding >= 0 && rounding <= INT32_MAX)
    compare::CountAsCarriedRounding(static_cast<int32_t>(rounding), result);
  const JsonValue& update = document.Member("wrong_update");
  const int64_t after = Integer(update, "after_step", -1);
  if (after >= 0 && after <= INT32_MAX)
    compare::NameWrongUpdate(static_cast<int32_t>(after), std::string(Text(update, "why")), result);
}

JsonFinding FindingOf(const JsonValue& document, const std::string& path, int32_t step,
                      int32_t rank) {
  JsonFinding found;
  if (const JsonValue* error = document.Find("error"); error != nullptr) {
    found.result.step = step, found.result.rank = rank;
    found.result.failed = InvalidArgument(error->text);
    return found;
  }
  ComparisonBuilder builder(path);
  const JsonValue& first = document.Member("first_divergence");
  const bool differs = first.kind == Kind::kObject;
  if (differs) AddCall(first, &builder);
  for (const JsonValue& other : document.Member("runners_up").items) AddCall(other, &builder);
  for (const bool target : {true, false}) {
    for (const JsonValue& name :
         document.Member("unmatched").Member(target ? "target" : "golden").items) {
      ResultRow row;
      (target ? row.target : row.golden).name = name.text;
      row.verdict = compare::RowVerdict::kUnknown;
      builder.Add(row);
    }
  }
  found.stated = StatedCallsOf(document);
  found.stated.AddCalls(&builder);
  found.calls = builder.Finish();
  compare::Comparison& c = found.calls;
  found.stated.Mark(&c);
  c.first = differs ? DivergenceOf(first, 0) : FirstDivergence();
  if (differs && c.pairs[0].row_count > 0) c.first.row = static_cast<int32_t>(c.pairs[0].first_row);
  c.exact = Text(document, "exact");
  const JsonValue& began = document.Member("beginning");
  c.run_start = {.mistake = std::string(Text(began, "note")),
                 .weights = std::string(Text(began, "weights")),
                 .data = std::string(Text(began, "data")),
                 .settings = std::string(Text(began, "settings"))};
  for (const JsonValue& sentence : document.Member("not_observed").items)
    c.not_observed.push_back(sentence.text);
  c.not_observed.push_back(OnlyCallsThatDiffer());
  found.result = compare::SummarizeRank(c, step, rank);
  FillSummary(document, &found.result.summary);
  FillSide(document.Member("target"), &found.result.target_side);
  FillSide(document.Member("golden"), &found.result.golden_side);
  found.result.judged = Status::Ok();
  FillSentences(document, &found.result);
  CountStep(document, &found.result);
  return found;
}

void AddRanks(const JsonValue& ranks, const std::string& path, int32_t step,
              std::vector<JsonFinding>* found) {
  for (const formats::JsonMember& rank : ranks.members) {
    int32_t number = -1;
    (void)std::from_chars(rank.key.data(), rank.key.data() + rank.key.size(), number);
    found->push_back(FindingOf(rank.value, path, step, number));
  }
}

}  // namespace

bool LooksLikeFindingJson(std::string_view text) {
  const std::string_view begin = text.substr(0, 200);
  return begin.starts_with('{') &&
         (begin.find("\"msprobe.compare/") != begin.npos || begin.find("\"ranks\"") != begin.npos ||
          begin.find("\"steps\"") != begin.npos);
}

Result<std::vector<JsonFinding>> ReadFindingJson(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const JsonValue document, formats::ParseJson(file.bytes(), path));
  std::vector<JsonFinding> found;
  if (const JsonValue* steps = document.Find("steps"); steps != nullptr) {
    for (const formats::JsonMember& step : steps->members) {
      int32_t number = -1;
      (void)std::from_chars(step.key.data(), step.key.data() + step.key.size(), number);
      AddRanks(step.value.Member("ranks"), path, number, &found);
    }
  } else if (const JsonValue* ranks = document.Find("ranks"); ranks != nullptr) {
    AddRanks(*ranks, path, -1, &found);
  } else if (Text(document, "schema") == compare::kJsonReportSchema) {
    found.push_back(FindingOf(document, path, -1, -1));
  }
  if (found.empty()) {
    return InvalidConfig(path, document.line)
        .Expected("a document with \"schema\": \"{}\""_t(compare::kJsonReportSchema))
        .Found(Text(document, "schema").empty() ? document.Describe()
                                                : Excerpt(Text(document, "schema")))
        .Hint("msprobe compare TARGET GOLDEN --format json > report.json writes one"_t);
  }
  return found;
}

}  // namespace msprobe::results
