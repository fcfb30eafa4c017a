#include "engine/compare/explain/optimizer_steps.h"

#include <fmt/format.h>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kState = "input.state.", kGroups = "input.param_groups.";

// "param_groups.1.lr" -> "lr of group 1"; of the first group "lr".
std::string NameOf(std::string_view label) {
  if (label.starts_with(kGroups)) {
    label.remove_prefix(kGroups.size());
    const size_t dot = label.find('.');
    const std::string_view group = label.substr(0, dot), name = label.substr(dot + 1);
    return group == "0" ? std::string(name) : fmt::format("{} of group {}", name, group);
  }
  if (label.starts_with("input.")) label.remove_prefix(6);
  return std::string(label);
}

}  // namespace

bool IsOptimizerState(const Record& record, const Leaf& leaf) {
  if (!IsOptimizerCall(record.api)) return false;
  const std::string_view name = leaf.name.view();
  return name.size() > record.name.size() &&
         name.substr(record.name.size() + 1).starts_with(kState);
}

std::string DescribeHyperParameters(const Comparison& c, int32_t p) {
  constexpr int kMost = 4;
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched() || !IsOptimizerCall(c.target.records[pair.target].api)) return "";
  std::string text;
  int found = 0;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
    const bool one_side = row.target < 0 || row.golden < 0;
    if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput ||
        IsOptimizerState(RecordOf(c, p), leaf) ||
        (!one_side && c.measures[i].verdict != RowVerdict::kDiffers))
      continue;
    if (++found > kMost) continue;
    const auto value = [&](const Dump& dump, int32_t index) {
      return index < 0 ? std::string("not given") : PlainValue(dump.leaves[index]);
    };
    text += fmt::format("{}{} is {} in the target, {} in the golden", text.empty() ? "" : "; ",
                        NameOf(LeafPath(c, static_cast<int32_t>(i))), value(c.target, row.target),
                        value(c.golden, row.golden));
  }
  if (found > kMost) text += fmt::format("; {} more differ", found - kMost);
  return text;
}

}  // namespace msprobe::compare
