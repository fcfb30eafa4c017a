#include "cli/outputs/diff_analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/report/report_ranks.h"

namespace msprobe::cli {
namespace {

// Appends a statistic as a number; NaN and text, for which JSON has no number, as a string.
void AppendStatistic(std::string* out, std::string_view key, std::string_view spelled,
                     double value) {
  AppendJsonString(out, key);
  *out += ": ";
  if (std::isfinite(value)) {
    AppendPythonFloat(out, value);
  } else {
    AppendJsonString(out, spelled.empty() ? "None" : spelled);
  }
}

void AppendLeaf(std::string* out, std::string_view side, const Leaf& leaf) {
  const struct {
    const char* name;
    std::string_view spelled;
    double value;
  } statistics[] = {{"max", leaf.max, leaf.max_value},
                    {"min", leaf.min, leaf.min_value},
                    {"mean", leaf.mean, leaf.mean_value},
                    {"l2norm", leaf.norm, leaf.norm_value}};
  bool first = true;
  for (const auto& s : statistics) {
    if (!first) *out += ", ";
    first = false;
    AppendStatistic(out, fmt::format("{} {}", side, s.name), s.spelled, s.value);
  }
}

void AppendRows(std::string* out, const compare::Comparison& c, const compare::RecordPair& pair,
                bool outputs) {
  *out += '{';
  bool first = true;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const compare::Row& row = c.rows[i];
    const Leaf* target = row.target >= 0 ? &c.target.leaves[row.target] : nullptr;
    const Leaf* golden = row.golden >= 0 ? &c.golden.leaves[row.golden] : nullptr;
    const Leaf* named = target != nullptr ? target : golden;
    if (named == nullptr || (named->slot == Slot::kOutput) != outputs) continue;
    *out += first ? "" : ", ";
    first = false;
    AppendJsonString(out, named->name);
    *out += ": {";
    if (target != nullptr) AppendLeaf(out, "NPU", *target);
    if (target != nullptr && golden != nullptr) *out += ", ";
    if (golden != nullptr) AppendLeaf(out, "Bench", *golden);
    *out += '}';
  }
  *out += '}';
}

void AppendRanks(std::string* out, std::span<const int32_t> ranks) {
  *out += '[';
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) *out += ", ";
    AppendInteger(out, ranks[i]);
  }
  *out += ']';
}

void AppendHops(std::string* out, const compare::RankOrigins& found) {
  *out += '[';
  bool first = true;
  for (const compare::RankHop& hop : found.hops) {
    if (hop.from.empty()) continue;
    *out += first ? "{\"op_name\": " : ", {\"op_name\": ";
    first = false;
    AppendJsonString(out, hop.name);
    *out += ", \"source_line\": ";
    AppendJsonString(out, hop.source_line);
    *out += ", \"from\": ";
    AppendRanks(out, hop.from);
    *out += ", \"to\": ";
    AppendRanks(out, hop.to);
    *out += '}';
  }
  *out += ']';
}

}  // namespace

std::string DivergenceNode(const compare::Comparison& c) {
  if (c.first.pair < 0) return "";
  std::string text;
  std::string* out = &text;
  const compare::RecordPair& pair = c.pairs[c.first.pair];
  const Dump& dump = pair.target >= 0 ? c.target : c.golden;
  const Record& record = dump.records[pair.target >= 0 ? pair.target : pair.golden];
  *out += "\"op_name\": ";
  AppendJsonString(out, record.name);
  *out += ", \"data_info\": {\"input\": ";
  AppendRows(out, c, pair, false);
  *out += ", \"output\": ";
  AppendRows(out, c, pair, true);
  *out += "}, \"stack_info\": [";
  if (record.stack >= 0) {
    for (size_t i = 0; i < dump.stacks[record.stack].size(); ++i) {
      if (i > 0) *out += ", ";
      AppendJsonString(out, dump.stacks[record.stack][i]);
    }
  }
  *out += "], \"class\": ";
  AppendJsonString(out, compare::ClassName(c.first.call_class));
  *out += ", \"confidence\": ";
  AppendPythonFloat(out, std::isfinite(c.first.confidence) ? c.first.confidence : 0);
  *out += ", \"source_line\": ";
  AppendJsonString(out, c.first.source_line);
  *out += ", \"why\": ";
  AppendJsonString(out, c.first.why.English());
  return text;
}

std::string DiffAnalysis(const compare::StepOrigins& step,
                         std::span<const compare::RankResult> results,
                         const std::vector<std::string_view>& nodes) {
  std::string out = "{";
  bool first = true;
  for (const compare::RankOrigin& origin : step.found.origins) {
    const compare::RankResult& result = results[step.results[origin.trace]];
    out += first ? "" : ",\n ";
    first = false;
    AppendJsonString(&out, fmt::format("rank_{}", std::max(result.rank, 0)));
    out += fmt::format(": [{{{}", nodes[origin.trace]);
    if (origin.in_exchange) {
      out += ", \"exchange\": ";
      AppendJsonString(&out, compare::DescribeExchange(origin).English());
    }
    if (results.size() > 1) {
      out += ", \"reached\": ";
      AppendRanks(&out, origin.reached);
      out += ", \"travelled\": ";
      AppendHops(&out, step.found);
      if (const Message text = compare::DescribeOutside(step, results); !text.empty()) {
        out += ", \"from_outside\": ";
        AppendJsonString(&out, text.English());
      }
    }
    out += "}]";
  }
  return out + "}\n";
}

}  // namespace msprobe::cli
