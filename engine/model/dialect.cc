#include "engine/model/dialect.h"

#include <array>

namespace msprobe {
namespace {

constexpr std::string_view kOurPrefix = "msprobe ";

// In the order of the enum.
constexpr std::array<DialectFacts, kDialectCount> kFacts = {{
    {.dialect = Dialect::kNone, .name = ""},
    {.dialect = Dialect::kMsprobe27,
     .name = "msprobe 27",
     .leaves_out_counts_of_zero = true,
     .writes_float32_statistics = true,
     .orders_gradients_by_argument = true,
     .guards_text = true},
    {.dialect = Dialect::kOtherOurs,
     .name = kOurPrefix,
     .leaves_out_counts_of_zero = true,
     .writes_float32_statistics = true,
     .orders_gradients_by_argument = true,
     .guards_text = true},
    {.dialect = Dialect::kMsprobe26, .name = "msprobe 26"},
    {.dialect = Dialect::kMsprobe8, .name = "msprobe 8"},
    {.dialect = Dialect::kMsprobe1_2, .name = "msprobe 1.2", .casts_bfloat16_for_crc32 = true},
    {.dialect = Dialect::kMsprobe1, .name = "msprobe 1.0", .casts_bfloat16_for_crc32 = true},
    {.dialect = Dialect::kPtdbg6, .name = "ptdbg_ascend 6"},
    {.dialect = Dialect::kPtdbg5, .name = "ptdbg_ascend 5"},
    {.dialect = Dialect::kPtdbg1To4, .name = "ptdbg_ascend 1 to 4"},
    {.dialect = Dialect::kPtdbgFirst, .name = "ptdbg_ascend 0.1"},
    {.dialect = Dialect::kHooks, .name = "torch_npu.hooks", .keeps_storages = true},
    {.dialect = Dialect::kTensors, .name = "tensors", .has_no_calls = true},
    {.dialect = Dialect::kCheckpoint, .name = "checkpoint: ", .has_no_calls = true},
    {.dialect = Dialect::kMindSporeGraph, .name = "MindSpore graph"},
}};

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].dialect != static_cast<Dialect>(i)) return false;
  }
  return true;
}
static_assert(IsInOrder());

}  // namespace

const DialectFacts& FactsOf(Dialect dialect) { return kFacts[static_cast<size_t>(dialect)]; }

Dialect DialectOfTool(std::string_view tool) {
  if (!tool.starts_with(kOurPrefix)) return Dialect::kNone;
  const std::string_view name = tool.substr(0, tool.find('.'));
  return name == FactsOf(Dialect::kMsprobe27).name ? Dialect::kMsprobe27 : Dialect::kOtherOurs;
}

}  // namespace msprobe
