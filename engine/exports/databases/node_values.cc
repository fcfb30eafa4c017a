#include "engine/exports/databases/node_values.h"

#include <algorithm>
#include <array>
#include <span>

#include "engine/base/text.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/judge.h"

namespace msprobe::exports {
namespace {

using compare::Comparison;

struct Difference {
  std::string_view column, explanation;
};

constexpr std::array kOfStatistics = {
    Difference{"Max diff", "target - golden of the maximum"},
    Difference{"Min diff", "target - golden of the minimum"},
    Difference{"Mean diff", "target - golden of the mean"},
    Difference{"L2norm diff", "target - golden of the L2 norm"},
    Difference{"MaxRelativeErr", ""},
    Difference{"MinRelativeErr", ""},
    Difference{"MeanRelativeErr", ""},
    Difference{"NormRelativeErr", ""},
};
constexpr std::array kOfTensors = {
    Difference{"Cosine", "cosine similarity of target and golden"},
    Difference{"EucDist", "L2 norm of target - golden"},
    Difference{"MaxAbsErr", "largest absolute error"},
    Difference{"MaxRelativeErr", "largest relative error"},
    Difference{"One Thousandth Err Ratio",
               "share of the elements with a relative error below 0.001"},
    Difference{"Five Thousandths Err Ratio",
               "share of the elements with a relative error below 0.005"},
};

std::span<const Difference> DifferencesIn(compare::Mode mode) {
  switch (mode) {
    case compare::Mode::kStatistics:
      return kOfStatistics;
    case compare::Mode::kTensor:
      return kOfTensors;
    case compare::Mode::kChecksum:
      break;
  }
  return {};
}

void AppendMember(std::string_view key, std::string_view value, std::string* json) {
  if (json->back() != '{') *json += ", ";
  AppendJsonString(json, key);
  *json += ": ";
  AppendJsonString(json, value);
}

// As Python's str() spells it; "null" when nothing was recorded.
std::string_view StatisticOf(std::string_view spelled) {
  if (spelled == "NaN") return "nan";
  if (spelled == "Infinity") return "inf";
  if (spelled == "-Infinity") return "-inf";
  return spelled.empty() ? "null" : spelled;
}

std::string_view OrNull(std::string_view text) { return text.empty() ? "null" : text; }

void AppendStatistics(const Leaf& leaf, std::string* json) {
  AppendMember("Max", StatisticOf(leaf.max), json);
  AppendMember("Min", StatisticOf(leaf.min), json);
  AppendMember("Mean", StatisticOf(leaf.mean), json);
  AppendMember("Norm", StatisticOf(leaf.norm), json);
}

// Without the closing brace.
void AppendLeaf(const Leaf& leaf, std::string* json) {
  *json += json->back() == '{' ? "" : ", ";
  AppendJsonString(json, leaf.name);
  *json += ": {";
  if (leaf.kind == LeafKind::kNone) return AppendMember("value", "null", json);
  AppendMember("type", leaf.type, json);
  if (leaf.kind == LeafKind::kTensor) {
    AppendMember("dtype", leaf.dtype.view(), json);
    AppendMember("shape", leaf.shape.view(), json);
    AppendStatistics(leaf, json);
    AppendMember("requires_grad", OrNull(leaf.requires_grad), json);
    if (!leaf.checksum.empty()) AppendMember("md5", leaf.checksum, json);
    return AppendMember("data_name", leaf.data_name.empty() ? "-1" : leaf.data_name.view(), json);
  }
  AppendMember("value", leaf.value, json);
  AppendMember("data_name", "-1", json);
  AppendMember("requires_grad", "null", json);
  AppendStatistics(leaf, json);
  std::string dtype(leaf.dtype.view());  // the page's tables have no quotes: <class int>
  std::erase(dtype, '\'');
  AppendMember("dtype", dtype, json);
  AppendMember("shape", leaf.shape.view(), json);
}

}  // namespace

void AppendRecordedValues(const Dump& dump, const Record& record, std::string* inputs,
                          std::string* outputs) {
  *inputs += '{', *outputs += '{';
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    std::string* json = leaf.slot == Slot::kOutput ? outputs : inputs;
    AppendLeaf(leaf, json);
    *json += '}';
  }
  *inputs += '}', *outputs += '}';
}

std::string_view NodeVerdictName(NodeVerdict verdict) {
  switch (verdict) {
    case NodeVerdict::kPass:
      return "pass";
    case NodeVerdict::kWarning:
      return "warning";
    case NodeVerdict::kError:
      break;
  }
  return "error";
}

NodeVerdict VerdictOfRow(const Comparison& c, size_t row) {
  const compare::Measure& measure = c.measures[row];
  if (measure.verdict == compare::RowVerdict::kDiffers) return NodeVerdict::kError;
  if (measure.verdict != compare::RowVerdict::kUnknown) return NodeVerdict::kPass;
  return compare::IsNeutral(measure) ? NodeVerdict::kPass : NodeVerdict::kWarning;
}

NodeVerdict VerdictOfPair(const Comparison& c, int32_t pair) {
  NodeVerdict worst = NodeVerdict::kPass;
  if (c.IsRewritten(pair)) return worst;
  const compare::RecordPair& both = c.pairs[pair];
  for (uint32_t row = both.first_row; row < both.first_row + both.row_count; ++row)
    worst = std::max(worst, VerdictOfRow(c, row));
  return worst;
}

NodeValues::NodeValues(const Comparison& comparison)
    : c_(comparison), table_(comparison, {.stacks = false}) {
  const auto find = [&](std::string_view name) {
    const auto& columns = table_.columns();
    const auto found = std::find_if(columns.begin(), columns.end(),
                                    [&](const compare::Column& c) { return c.name == name; });
    columns_.push_back(static_cast<size_t>(found - columns.begin()));
  };
  for (const Difference& difference : DifferencesIn(c_.mode)) find(difference.column);
  find("Requires_grad Consistent");
}

void NodeValues::OfPair(int32_t pair, std::string* inputs, std::string* outputs) {
  *inputs += '{', *outputs += '{';
  const compare::RecordPair& both = c_.pairs[pair];
  for (uint32_t row = both.first_row; row < both.first_row + both.row_count; ++row) {
    if (c_.rows[row].target < 0) continue;
    const Leaf& leaf = c_.target.leaves[c_.rows[row].target];
    std::string* json = leaf.slot == Slot::kOutput ? outputs : inputs;
    AppendLeaf(leaf, json);
    if (leaf.kind != LeafKind::kNone) AppendDifferences(row, json);
    *json += '}';
  }
  *inputs += '}', *outputs += '}';
}

void NodeValues::AppendDifferences(size_t row, std::string* json) {
  table_.Fill(row, &cells_);
  const auto cell = [&](size_t i) {
    return columns_[i] < cells_.cells.size() ? cells_.TextOf(cells_.cells[columns_[i]]) : "N/A";
  };
  size_t i = 0;
  for (const Difference& difference : DifferencesIn(c_.mode)) {
    const std::string_view text = cell(i++);
    const bool is_zero = c_.mode == compare::Mode::kStatistics && text == "0";
    const bool in_percent = difference.column.ends_with("Err");
    AppendMember(difference.column, !is_zero ? text : in_percent ? "0.0%" : "0.0", json);
  }
  const std::string_view verdict = NodeVerdictName(VerdictOfRow(c_, row));
  // The page lists them in this order.
  const bool verdict_first = c_.mode == compare::Mode::kChecksum;
  if (verdict_first) AppendMember("Result", verdict, json);
  AppendMember("Requires_grad Consistent", cell(i), json);
  if (!verdict_first) AppendMember("Result", verdict, json);
  std::string why, list = "[";
  if (c_.measures[row].verdict == compare::RowVerdict::kDiffers) {
    why = compare::DescribeRow(c_, static_cast<int32_t>(row)).English();
  } else {
    compare::AppendReason(&why, c_, row);
  }
  if (!why.empty()) AppendJsonString(&list, why);
  AppendMember("Err_message", list + "]", json);
}

std::string NodeValues::Explanations(compare::Mode mode) {
  if (mode == compare::Mode::kChecksum)
    return R"({"md5": "checksum: equal when all bits of target and golden are equal"})";
  std::string json = "{";
  for (const Difference& difference : DifferencesIn(mode)) {
    if (!difference.explanation.empty())
      AppendMember(difference.column, difference.explanation, &json);
  }
  return json + "}";
}

}  // namespace msprobe::exports
