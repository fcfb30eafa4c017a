#include "engine/report_page/page_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/base/threads.h"

namespace msprobe::report_page {
namespace {

constexpr size_t kLongestValue = 2000;  // characters of a plain value
constexpr size_t kMostLinks = 12;

}  // namespace

std::vector<uint8_t> ChooseCalls(std::span<const uint32_t> costs, std::span<const uint8_t> ranks,
                                 uint64_t bytes) {
  std::vector<uint8_t> kept(costs.size());
  uint64_t used = 0;
  for (uint8_t rank = 0; rank < 4; ++rank) {
    for (size_t i = 0; i < costs.size() && used <= bytes; ++i) {
      if (ranks[i] != rank) continue;
      kept[i] = 1;
      used += costs[i];
    }
  }
  return kept;
}

void AppendBlocks(std::string_view name, size_t calls,
                  const std::function<void(size_t call, std::string* line)>& append_line,
                  PageText* html) {
  std::vector<PageText> blocks((calls + kCallsOfBlock - 1) / kCallsOfBlock);
  ThreadPool::Default().ParallelFor(blocks.size(), [&](size_t block) {
    std::string text;
    const size_t end = std::min(calls, (block + 1) * kCallsOfBlock);
    for (size_t call = block * kCallsOfBlock; call < end; ++call) {
      append_line(call, &text);
      text += '\n';
    }
    AppendText(fmt::format("{}-{}", name, block), text, &blocks[block]);
  });
  for (PageText& block : blocks) html->push_back(std::move(block.front()));
}

void AppendSide(const Leaf& leaf, std::string* json) {
  *json += '[';
  size_t at = 0, empty = 0;  // members so far; those at the end that are not written yet
  const auto put = [&](std::string_view text) {
    ++at;
    if (text.empty()) return void(++empty);
    for (; empty > 0; --empty) *json += json->back() == '[' ? "\"\"" : ",\"\"";
    if (json->back() != '[') *json += ',';
    AppendJsonString(json, text.substr(0, kLongestValue));
  };
  const auto skip_to = [&](size_t place) {
    for (; at < place; ++at) ++empty;
  };
  const auto count = [&](int64_t n) { put(n > 0 ? std::to_string(n) : std::string()); };
  const bool plain = leaf.kind == LeafKind::kScalar;
  put(leaf.kind == LeafKind::kTensor ? "t" : plain ? "s" : "n");
  put(plain && !leaf.type.empty() ? leaf.type.view() : leaf.dtype.view());
  put(leaf.shape.view());
  if (leaf.kind == LeafKind::kTensor) {
    put(leaf.max), put(leaf.min), put(leaf.mean), put(leaf.norm);
    count(leaf.counts->nan), count(leaf.counts->pos_inf);
    count(leaf.counts->neg_inf), count(leaf.counts->zero);
  } else if (plain) {
    constexpr size_t kPlaceOfValue = 11;
    skip_to(kPlaceOfValue);
    put(leaf.value.empty() ? leaf.max : leaf.value);
  }
  *json += ']';
}

void AppendShortNumber(double value, std::string* json) {
  if (std::isnan(value)) {
    *json += "null";
  } else if (std::isinf(value)) {
    *json += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    fmt::format_to(std::back_inserter(*json), "{:.4g}", value);
  }
}

void AppendCalls(std::span<const int32_t> calls, std::string* json) {
  *json += '[';
  for (size_t i = 0; i < std::min(calls.size(), kMostLinks); ++i) {
    if (i > 0) *json += ',';
    AppendInteger(json, calls[i]);
  }
  *json += ']';
}

}  // namespace msprobe::report_page
