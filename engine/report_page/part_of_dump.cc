#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/compare/model/page_release.h"
#include "engine/report_page/data_links.h"
#include "engine/report_page/page_calls.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_part.h"
#include "engine/report_page/page_values.h"

namespace msprobe::report_page {
namespace {

// The classes of the calls of one dump.
enum : uint8_t { kFinite, kNonFinite, kNotMeasured };

std::string_view ShortName(const Record& record, const Leaf& leaf) {
  std::string_view path = leaf.name;
  if (path.starts_with(record.name)) path.remove_prefix(record.name.size());
  while (path.starts_with('.') || path.starts_with('_')) path.remove_prefix(1);
  return path.empty() ? leaf.name.view() : path;
}

bool HasNonFinite(const Leaf& leaf) {
  return leaf.counts->nan > 0 || leaf.counts->pos_inf > 0 || leaf.counts->neg_inf > 0 ||
         (leaf.has_stats && (std::isnan(leaf.norm_value) || std::isinf(leaf.max_value) ||
                             std::isinf(leaf.min_value)));
}

CallColumns::Call Describe(const Dump& dump, const Record& record) {
  CallColumns::Call call{.record = &record, .call_class = kNotMeasured};
  double largest = Leaf::kNaN;
  const Leaf* first = nullptr;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor) continue;
    if (first == nullptr) first = &leaf;
    if (call.shown == nullptr && leaf.slot == Slot::kOutput) call.shown = &leaf;
    if (HasNonFinite(leaf)) {
      call.call_class = kNonFinite;
    } else if (leaf.has_stats && call.call_class == kNotMeasured) {
      call.call_class = kFinite;
    }
    if (leaf.slot != Slot::kOutput || !leaf.has_stats) continue;
    const double size = std::max(std::abs(leaf.max_value), std::abs(leaf.min_value));
    if (!std::isnan(size) && !(size <= largest)) largest = size;
  }
  if (call.shown == nullptr) call.shown = first;
  call.size = static_cast<float>(largest);
  return call;
}

std::string Head(const Dump& dump, const PartOptions& options, int64_t first,
                 int64_t without_values) {
  std::string json = fmt::format(
      "{{\"classes\":[\"finite\",\"non-finite\",\"not measured\"],\"calls\":{},\"first\":{},"
      "\"step\":{},\"rank\":{},\"withoutValues\":{},\"block\":{},\"sizeName\":\"{}\","
      "\"target\":",
      dump.records.size(), first, options.step, options.rank, without_values, kCallsOfBlock,
      "largest value");
  AppendJsonString(&json, dump.path);
  return json + ",\"golden\":null,\"why\":\"\",\"advice\":\"\",\"source\":\"\"}";
}

}  // namespace

PagePart PartOf(const Dump& dump, const PartOptions& options) {
  const std::string name = fmt::format("p{}", options.index);
  CallColumns calls;
  calls.Reserve(dump.records.size());
  compare::PageRelease pages(dump);
  std::vector<uint32_t> costs;
  std::vector<uint8_t> ranks;
  int64_t first = -1;
  for (const Record& record : dump.records) {
    CallColumns::Call call = Describe(dump, record);
    if (record.stack >= 0 && static_cast<size_t>(record.stack) < dump.stacks.size())
      call.stack = calls.stacks.Of(&dump.stacks[record.stack]);
    call.module = calls.modules.Of(record.is_module        ? record.name.view()
                                   : record.parent.empty() ? record.module.view()
                                                           : record.parent.view());
    if (first < 0 && call.call_class == kNonFinite) first = static_cast<int64_t>(calls.count());
    constexpr uint32_t kBytesOfRow = 100;
    costs.push_back(2 + kBytesOfRow * record.leaf_count);
    ranks.push_back(call.call_class == kNonFinite ? 0 : 1);
    calls.Add(call);
    pages.RowsDone(record.leaf_count);
  }
  PagePart part;
  calls.AppendTo(name, &part.html);
  calls = {};  // what follows needs as much memory
  const std::vector<uint8_t> kept = ChooseCalls(costs, ranks, options.value_bytes);
  const std::vector<int32_t> made_by = MakersOf(dump);
  const Takers takers(dump, made_by);
  AppendBlocks(
      name + "-values", dump.records.size(),
      [&](size_t index, std::string* line) {
        if (kept[index] == 0) return;
        const Record& record = dump.records[index];
        pages.RowsDone(record.leaf_count);
        *line += '[';
        for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
          const Leaf& leaf = dump.leaves[i];
          if (line->back() != '[') *line += ',';
          *line += '[';
          AppendJsonString(line, ShortName(record, leaf));
          *line += HasNonFinite(leaf) ? ",2,null," : ",0,null,";
          AppendSide(leaf, line);
          *line += ",null,";
          AppendMessage(dump.UnreadableOf(static_cast<int32_t>(i)), line);
          *line += ',';
          AppendInteger(line, made_by[i]);
          *line += ',';
          AppendCalls(leaf.slot == Slot::kOutput ? takers.Of(static_cast<int32_t>(index))
                                                 : std::span<const int32_t>(),
                      line);
          *line += ']';
        }
        *line += ']';
      },
      &part.html);
  AppendText(name + "-head", Head(dump, options, first, std::count(kept.begin(), kept.end(), 0)),
             &part.html);
  return part;
}

}  // namespace msprobe::report_page
