#include "engine/report_page/page_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/report_page/page_data.h"

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

void AppendValueBlocks(std::string_view part, size_t calls,
                       const std::function<void(size_t call, std::string* line)>& append_line,
                       std::string* html) {
  std::vector<std::string> blocks((calls + kCallsOfBlock - 1) / kCallsOfBlock);
  ThreadPool::Default().ParallelFor(blocks.size(), [&](size_t block) {
    std::string text;
    const size_t end = std::min(calls, (block + 1) * kCallsOfBlock);
    for (size_t call = block * kCallsOfBlock; call < end; ++call) {
      append_line(call, &text);
      text += '\n';
    }
    AppendText(fmt::format("{}-values-{}", part, block), text, &blocks[block]);
  });
  for (std::string& block : blocks) *html += std::exchange(block, {});
}

void AppendSide(const Leaf& leaf, std::string* json) {
  std::string texts[12];
  size_t used = 0;
  const auto put = [&](size_t at, std::string_view text) {
    if (text.empty()) return;
    texts[at].assign(text.substr(0, kLongestValue));
    used = std::max(used, at + 1);
  };
  const auto count = [&](size_t at, int64_t n) {
    if (n > 0) put(at, std::to_string(n));
  };
  put(0, leaf.kind == LeafKind::kTensor ? "t" : leaf.kind == LeafKind::kScalar ? "s" : "n");
  put(1,
      leaf.kind == LeafKind::kScalar && !leaf.type.empty() ? leaf.type.view() : leaf.dtype.view());
  put(2, leaf.shape.view());
  if (leaf.kind == LeafKind::kTensor) {
    put(3, leaf.max), put(4, leaf.min), put(5, leaf.mean), put(6, leaf.norm);
    count(7, leaf.counts->nan), count(8, leaf.counts->pos_inf);
    count(9, leaf.counts->neg_inf), count(10, leaf.counts->zero);
  } else if (leaf.kind == LeafKind::kScalar) {
    put(11, leaf.value.empty() ? leaf.max : leaf.value);
  }
  *json += '[';
  for (size_t i = 0; i < used; ++i) {
    if (i > 0) *json += ',';
    AppendJsonString(json, texts[i]);
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
