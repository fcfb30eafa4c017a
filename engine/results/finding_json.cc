#include "engine/results/finding_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

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
double Number(const JsonValue& object, std::string_view key) {
  return formats::JsonNumber(Text(object, key));
}
int64_t Integer(const JsonValue& object, std::string_view key, int64_t otherwise = 0) {
  const std::string_view text = Text(object, key);
  int64_t value = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : otherwise;
}
const JsonValue& Member(const JsonValue& object, std::string_view key) {
  static const JsonValue kNothing;
  const JsonValue* value = object.Find(key);
  return value != nullptr ? *value : kNothing;
}

template <typename Word, typename NameOf>
Word WordOf(std::string_view text, int words, NameOf name_of, Word otherwise) {
  for (int i = 0; i < words; ++i) {
    if (name_of(static_cast<Word>(i)) == text) return static_cast<Word>(i);
  }
  return otherwise;
}

compare::CallClass ClassIn(const JsonValue& divergence) {
  return WordOf(Text(divergence, "class"), 5, &compare::ClassName, compare::CallClass::kUnknown);
}

ResultValue SideOf(const JsonValue& worst, std::string_view side, std::string_view name) {
  const auto of_side = [&](std::string_view what) {
    return Text(worst, fmt::format("{}_{}", side, what));
  };
  const JsonValue& statistics = Member(worst, "statistics");
  const auto statistic = [&](std::string_view key) { return Text(Member(statistics, key), side); };
  const JsonValue& counts = Member(worst, fmt::format("{}_nonfinite", side));
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
  const JsonValue& worst = Member(divergence, "worst");
  const auto name = [&](std::string_view side) {
    const std::string_view row = Text(worst, fmt::format("{}_row", side));
    return row.empty() ? Text(divergence, fmt::format("{}_name", side)) : row;
  };
  ResultRow row{.target = SideOf(worst, "target", name("target")),
                .golden = SideOf(worst, "golden", name("golden"))};
  row.verdict =
      WordOf(Text(worst, "verdict"), 4, &compare::VerdictName, compare::RowVerdict::kUnknown);
  // A call that only one run has is named, and has no class among the calls.
  const bool paired = !row.target.name.empty() && !row.golden.name.empty();
  row.call_class = paired ? ClassIn(divergence) : compare::CallClass::kUnknown;
  row.severity = Number(worst, "severity");
  row.reason = Text(worst, "reason");
  if (const JsonValue& e = Member(worst, "elements"); e.kind == Kind::kObject) {
    row.diff = kernels::Diff{.count = Integer(e, "count"),
                             .unequal = Integer(e, "unequal"),
                             .cosine = Number(e, "cosine"),
                             .relative_l2 = Number(e, "relative_l2"),
                             .max_abs_error = Number(e, "max_abs_error"),
                             .max_rel_error = Number(e, "max_rel_error"),
                             .rmse = Number(e, "rmse"),
                             .max_ulp = Integer(e, "max_ulp", -1),
                             .worst_index = Integer(e, "worst_index", -1),
                             .worst_target = Number(e, "worst_target"),
                             .worst_golden = Number(e, "worst_golden")};
  }
  builder->Add(row);
}

// The calls of the document's regions (compare/regions/regions.h), of which `builder` has some.
class StatedRegions {
 public:
  explicit StatedRegions(const JsonValue& document) : regions_(Member(document, "regions")) {}

  // Calls that the document names nowhere else. Rows are added after all others.
  void AddCalls(const compare::Comparison& known, ComparisonBuilder* builder) const {
    const NamedPairs there(known);
    std::unordered_set<std::string_view> added[2];
    const auto add = [&](std::string_view target, std::string_view golden) {
      const bool is_new =
          (target.empty() || (there.Find(true, target) < 0 && added[0].insert(target).second)) &&
          (golden.empty() || (there.Find(false, golden) < 0 && added[1].insert(golden).second));
      if (!is_new) return;
      ResultRow row{.target = {.name = target}, .golden = {.name = golden}};
      row.verdict = compare::RowVerdict::kUnknown;
      row.call_class = compare::CallClass::kUnknown;
      builder->Add(row);
    };
    for (const JsonValue& region : regions_.items) {
      for (const JsonValue& pair : Member(region, "matched").items)
        if (pair.items.size() == 2) add(pair.items[0].text, pair.items[1].text);
      for (const JsonValue& name : Member(region, "target").items) add(name.text, "");
      for (const JsonValue& name : Member(region, "golden").items) add("", name.text);
    }
  }

  void Mark(compare::Comparison* c) const {
    if (regions_.items.empty()) return;
    const NamedPairs pairs(*c);
    c->stated_regions.resize(c->pairs.size());
    c->rewritten.resize(c->pairs.size());
    for (size_t i = 0; i < regions_.items.size(); ++i) {
      const JsonValue& region = regions_.items[i];
      for (const bool target : {true, false}) {
        for (const JsonValue& name : Member(region, target ? "target" : "golden").items) {
          const int32_t p = pairs.Find(target, name.text);
          if (p < 0 || c->stated_regions[p] != 0) continue;
          c->stated_regions[p] = static_cast<uint32_t>(i + 1);
          if (Text(region, "verdict") == "rewrite") c->rewritten[p] = compare::Comparison::kRewrite;
        }
      }
    }
  }

 private:
  // The pairs of a comparison by the names of their calls.
  class NamedPairs {
   public:
    explicit NamedPairs(const compare::Comparison& c) {
      for (size_t p = 0; p < c.pairs.size(); ++p) {
        const auto index = static_cast<int32_t>(p);
        if (c.pairs[p].target >= 0)
          by_name_[0].emplace(c.target.records[c.pairs[p].target].name, index);
        if (c.pairs[p].golden >= 0)
          by_name_[1].emplace(c.golden.records[c.pairs[p].golden].name, index);
      }
    }
    int32_t Find(bool target, std::string_view name) const {
      const auto& names = by_name_[target ? 0 : 1];
      const auto found = names.find(name);
      return found == names.end() ? -1 : found->second;
    }

   private:
    std::unordered_map<std::string_view, int32_t> by_name_[2];
  };

  const JsonValue& regions_;
};

FirstDivergence DivergenceOf(const JsonValue& object, int32_t pair) {
  FirstDivergence f;
  f.pair = pair;
  f.call_class = ClassIn(object);
  f.confidence = Number(object, "confidence");
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
  s->verdict = WordOf(Text(document, "verdict"), 5, &compare::RunVerdictName, RunVerdict::kUnknown);
  const JsonValue& rows = Member(document, "rows");
  for (int i = 0; i < 4; ++i)
    s->rows[i] = Integer(rows, compare::VerdictName(static_cast<compare::RowVerdict>(i)));
  const JsonValue& calls = Member(document, "calls");
  for (int i = 0; i < 5; ++i)
    s->calls[i] = Integer(calls, compare::ClassName(static_cast<compare::CallClass>(i)));
  const JsonValue& compared = Member(document, "compared");
  s->compared = Integer(compared, "values");
  s->target_values = Integer(compared, "target"), s->golden_values = Integer(compared, "golden");
  s->neutral_rows = Integer(rows, "nothing_recorded");
  s->other_forms = Integer(rows, "other_form");
  s->without_effect = Integer(rows, "without_effect");
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
  out->complete = Member(side, "complete").boolean;
}

// What the report of several steps says of this one. A document of one step says nothing.
void CountStep(const JsonValue& document, compare::RankResult* result) {
  const int64_t rounding = Integer(document, "rounding_of_step", -1);
  if (rounding >= 0 && rounding <= INT32_MAX)
    compare::CountAsCarriedRounding(static_cast<int32_t>(rounding), result);
  const JsonValue& update = Member(document, "wrong_update");
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
  const JsonValue& first = Member(document, "first_divergence");
  const bool differs = first.kind == Kind::kObject;
  if (differs) AddCall(first, &builder);
  for (const JsonValue& other : Member(document, "runners_up").items) AddCall(other, &builder);
  for (const bool target : {true, false}) {
    for (const JsonValue& name :
         Member(Member(document, "unmatched"), target ? "target" : "golden").items) {
      ResultRow row;
      (target ? row.target : row.golden).name = name.text;
      row.verdict = compare::RowVerdict::kUnknown;
      builder.Add(row);
    }
  }
  const StatedRegions regions(document);
  regions.AddCalls(builder.so_far(), &builder);
  found.calls = builder.Finish();
  compare::Comparison& c = found.calls;
  regions.Mark(&c);
  c.first = differs ? DivergenceOf(first, 0) : FirstDivergence();
  if (differs && c.pairs[0].row_count > 0) c.first.row = static_cast<int32_t>(c.pairs[0].first_row);
  c.exact = Text(document, "exact");
  const JsonValue& began = Member(document, "beginning");
  c.run_start = {.mistake = std::string(Text(began, "note")),
                 .weights = std::string(Text(began, "weights")),
                 .data = std::string(Text(began, "data")),
                 .settings = std::string(Text(began, "settings"))};
  for (const JsonValue& sentence : Member(document, "not_observed").items)
    c.not_observed.push_back(sentence.text);
  c.not_observed.emplace_back(kOnlyCallsThatDiffer);
  found.result = compare::SummarizeRank(c, step, rank);
  FillSummary(document, &found.result.summary);
  FillSide(Member(document, "target"), &found.result.target_side);
  FillSide(Member(document, "golden"), &found.result.golden_side);
  found.result.judged = Status::Ok();
  found.result.not_judged.clear();
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
      AddRanks(Member(step.value, "ranks"), path, number, &found);
    }
  } else if (const JsonValue* ranks = document.Find("ranks"); ranks != nullptr) {
    AddRanks(*ranks, path, -1, &found);
  } else if (Text(document, "schema") == compare::kJsonReportSchema) {
    found.push_back(FindingOf(document, path, -1, -1));
  }
  if (found.empty()) {
    return InvalidConfig(path, document.line)
        .Expected(fmt::format("a document with \"schema\": \"{}\"", compare::kJsonReportSchema))
        .Found(Text(document, "schema").empty() ? document.Describe()
                                                : Excerpt(Text(document, "schema")))
        .Hint("msprobe compare TARGET GOLDEN --format json > report.json writes one");
  }
  return found;
}

}  // namespace msprobe::results
