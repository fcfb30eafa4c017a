#include "engine/compare/table/fail_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/page_release.h"

namespace msprobe::compare {
namespace {

using Kind = FailCondition::Kind;
using Op = FailCondition::Op;

constexpr std::pair<std::string_view, Kind> kWords[] = {
    {"error", Kind::kError},     {"warning", Kind::kWarning}, {"unmatched", Kind::kUnmatched},
    {"unknown", Kind::kUnknown}, {"differs", Kind::kDiffers}, {"noise", Kind::kNoise}};

// "onethousandtherrratio" for "One Thousandth Err Ratio".
std::string Plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

// Reads a number as limits and cells spell it: 0.5, 50.0%, inf, Nan. false: the text is no number.
bool ParseCell(std::string_view text, double* value) {
  text = Trim(text);
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  if (text == "Nan" || text == "nan" || text == "NaN") return *value = std::nan(""), true;
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (text.empty() || error != std::errc() || stop != end) return false;
  if (percent) *value /= 100;
  return true;
}

Status Wrong(std::string_view condition) {
  std::vector<std::string_view> words;
  for (const auto& [word, kind] : kWords) words.push_back(word);
  const std::string_view near = NearestSpelling(condition, words);
  Status status = InvalidArgument(std::string("--fail-on " + Excerpt(condition)))
                      .Expected(
                          "error, warning, unmatched, unknown, differs, noise, or a limit "
                          "such as MaxRelativeErr>0.01 or Cosine<99%"_t)
                      .Found(Excerpt(condition));
  return near.empty() ? std::move(status) : std::move(status).Hint("did you mean {}?"_t(near));
}

Result<FailCondition> ParseCondition(std::string_view text) {
  FailCondition condition{.text = std::string(text)};
  for (const auto& [word, kind] : kWords) {
    if (text == word) return condition.kind = kind, condition;
  }
  const size_t at = text.find_first_of("<>");
  if (at == text.npos || at == 0) return Wrong(text);
  const bool equal = at + 1 < text.size() && text[at + 1] == '=';
  condition.kind = Kind::kColumn;
  condition.column = Trim(text.substr(0, at));
  condition.op = text[at] == '>' ? equal ? Op::kAtLeast : Op::kAbove
                 : equal         ? Op::kAtMost
                                 : Op::kBelow;
  if (condition.column.empty() || !ParseCell(text.substr(at + (equal ? 2 : 1)), &condition.limit) ||
      std::isnan(condition.limit)) {
    return Wrong(text);
  }
  return condition;
}

bool Meets(double value, Op op, double limit) {
  if (std::isnan(value)) return true;
  switch (op) {
    case Op::kAbove:
      return value > limit;
    case Op::kAtLeast:
      return value >= limit;
    case Op::kBelow:
      return value < limit;
    case Op::kAtMost:
      return value <= limit;
  }
  return false;
}

bool MeetsWord(Kind kind, const TableFormat& table, size_t row) {
  const Comparison& c = table.comparison();
  const Measure& m = c.measures[row];
  const Result26 result = table.ResultOf(row);
  switch (kind) {
    case Kind::kError:
      return result == Result26::kError;
    case Kind::kWarning:
      return result == Result26::kWarning || result == Result26::kError;
    case Kind::kUnmatched:
      return c.rows[row].target < 0 || c.rows[row].golden < 0;
    case Kind::kUnknown:
      return m.verdict == RowVerdict::kUnknown && !IsNeutral(m);
    case Kind::kDiffers:
      return m.verdict == RowVerdict::kDiffers;
    case Kind::kNoise:
      return m.verdict == RowVerdict::kDiffers || m.verdict == RowVerdict::kNoise;
    case Kind::kColumn:
      break;
  }
  return false;
}

struct Tally {
  int64_t rows = 0;
  size_t first = 0;
  std::string value;
};

}  // namespace

Result<FailOn> ParseFailOn(std::string_view text) {
  FailOn limits;
  for (const std::string_view part : Split(text, ',')) {
    MSPROBE_ASSIGN_OR_RETURN(FailCondition condition, ParseCondition(Trim(part)));
    limits.conditions.push_back(std::move(condition));
  }
  return limits;
}

namespace {

Status NoColumn(const FailCondition& condition, const TableFormat& table) {
  std::vector<std::string_view> names;
  for (const Column& column : table.columns()) names.push_back(column.name);
  const std::string_view near = NearestSpelling(condition.column, names);
  return InvalidArgument(
             "--fail-on {}: a table by {} has no column {}"_t(
                 condition.text, WordOf(table.comparison().mode), Excerpt(condition.column)))
      .Hint(near.empty() ? "the first line of the csv file names the columns"_t
                         : "did you mean {}?"_t(near));
}

// The column of each condition that names one; of the others nullopt.
Result<std::vector<std::optional<size_t>>> ColumnOfEach(const FailOn& limits,
                                                        const TableFormat& table) {
  std::vector<std::optional<size_t>> columns;
  for (const FailCondition& condition : limits.conditions) {
    std::optional<size_t>& at = columns.emplace_back();
    if (condition.kind != Kind::kColumn) continue;
    const auto found = std::find_if(
        table.columns().begin(), table.columns().end(),
        [&](const Column& column) { return Plain(column.name) == Plain(condition.column); });
    if (found == table.columns().end()) return NoColumn(condition, table);
    at = static_cast<size_t>(found - table.columns().begin());
  }
  return columns;
}

// Whether the row meets the condition. `*cell`: the text of its column, if it names one.
bool MeetsCondition(const FailCondition& condition, std::optional<size_t> column,
                    const TableFormat& table, size_t r, const TableRow& row,
                    std::string_view* cell) {
  if (!column) return MeetsWord(condition.kind, table, r);
  *cell = row.TextOf(row.cells[*column]);
  double value = 0;
  return ParseCell(*cell, &value) && Meets(value, condition.op, condition.limit);
}

FailHit HitOf(const FailCondition& condition, size_t index, const Comparison& c,
              const std::vector<std::vector<Tally>>& tallies) {
  FailHit hit{.condition = condition.text};
  for (const std::vector<Tally>& chunk : tallies) {
    if (hit.rows == 0 && chunk[index].rows > 0) {
      const Row& row = c.rows[chunk[index].first];
      hit.first =
          row.target >= 0 ? c.target.leaves[row.target].name : c.golden.leaves[row.golden].name;
      hit.value = Trim(chunk[index].value);
    }
    hit.rows += chunk[index].rows;
  }
  return hit;
}

}  // namespace

Result<std::vector<FailHit>> CheckRows(const FailOn& limits, const TableFormat& table) {
  const size_t count = limits.conditions.size();
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::optional<size_t>> columns,
                           ColumnOfEach(limits, table));
  const bool cells =
      std::any_of(columns.begin(), columns.end(), [](const auto& at) { return at.has_value(); });
  constexpr size_t kChunk = 4096;
  const size_t chunks = (table.rows() + kChunk - 1) / kChunk;
  std::vector<std::vector<Tally>> tallies(chunks, std::vector<Tally>(count));
  PageRelease pages(table.comparison().target, table.comparison().golden);
  ThreadPool::Default().ParallelFor(chunks, [&](size_t chunk) {
    TableRow row;
    const size_t end = std::min(table.rows(), (chunk + 1) * kChunk);
    pages.RowsDone(end - chunk * kChunk);
    for (size_t r = chunk * kChunk; r < end; ++r) {
      if (cells) table.Fill(r, &row);
      for (size_t i = 0; i < count; ++i) {
        std::string_view text;
        if (!MeetsCondition(limits.conditions[i], columns[i], table, r, row, &text)) continue;
        Tally& tally = tallies[chunk][i];
        if (tally.rows++ == 0) tally.first = r, tally.value = text;
      }
    }
  });
  std::vector<FailHit> hits;
  for (size_t i = 0; i < count; ++i) {
    FailHit hit = HitOf(limits.conditions[i], i, table.comparison(), tallies);
    if (hit.rows > 0) hits.push_back(std::move(hit));
  }
  return hits;
}

Message DescribeHit(const FailHit& hit) {
  const Message first = hit.value.empty() ? Message(hit.first) : "{} ({})"_t(hit.first, hit.value);
  return hit.rows == 1 ? "{}: 1 value, the first is {}"_t(hit.condition, first)
                       : "{}: {} values, the first is {}"_t(hit.condition, hit.rows, first);
}

}  // namespace msprobe::compare
