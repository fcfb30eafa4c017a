#include "engine/exports/databases/overflow_level.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/model/names.h"

namespace msprobe::exports {
namespace {

bool IsBad(double value, std::string_view spelled) { return std::isinf(value) || spelled == "NaN"; }

// "empty_like" of "Torch.empty_like.0.forward".
std::string_view FunctionOf(const Record& record) {
  const std::string_view api = record.api;
  return api.substr(api.rfind('.') + 1);
}

bool MayHoldAnything(const Record& record) {
  constexpr std::array<std::string_view, 12> kFillers = {"recv",
                                                         "irecv",
                                                         "batch_isend_irecv",
                                                         "all_gather",
                                                         "_all_gather_base",
                                                         "all_gather_into_tensor",
                                                         "reduce_scatter",
                                                         "_reduce_scatter_base",
                                                         "reduce_scatter_tensor",
                                                         "all_to_all",
                                                         "all_to_all_single",
                                                         "masked_fill_"};
  const std::string_view function = FunctionOf(record);
  return ReturnsUnwrittenMemory(function) ||
         std::find(kFillers.begin(), kFillers.end(), function) != kFillers.end();
}

struct Side {
  bool bad = false;
  double norm = -1;  // the largest of a tensor; -1: none

  void Add(const Leaf& leaf) {
    bad |= IsBad(leaf.max_value, leaf.max) || IsBad(leaf.min_value, leaf.min) ||
           IsBad(leaf.mean_value, leaf.mean);
    if (std::isfinite(leaf.norm_value)) norm = std::max(norm, leaf.norm_value);
  }
};

}  // namespace

std::string_view OverflowLevel(const Dump& dump, const Record& record) {
  constexpr double kLargestGrowth = 100;
  if (!record.is_module && MayHoldAnything(record)) return "";
  Side inputs, outputs;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind == LeafKind::kTensor) (leaf.slot == Slot::kOutput ? outputs : inputs).Add(leaf);
  }
  if (outputs.bad) return inputs.bad ? "high" : "critical";
  if (inputs.bad) return "medium";
  return inputs.norm > 0 && outputs.norm / inputs.norm > kLargestGrowth ? "high" : "";
}

}  // namespace msprobe::exports
