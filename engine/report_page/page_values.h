// The values of calls as blocks of text, one line of JSON for each call, packed block by block: a
// page unpacks only the block of the call that is looked at.
//
//   const std::vector<uint8_t> kept = ChooseCalls(costs, ranks, options.value_bytes);
//   AppendBlocks("p0-values", calls, [&](size_t call, std::string* line) { ... }, &html);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/table.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

inline constexpr size_t kCallsOfBlock = 2048;

// Which calls keep their values, 1 or 0 for each: those of rank 0 first, then 1, 2, 3, each in
// execution order, until the costs (bytes) are more than `bytes`.
std::vector<uint8_t> ChooseCalls(std::span<const uint32_t> costs, std::span<const uint8_t> ranks,
                                 uint64_t bytes);

// Calls `append_line` for every call, from several threads, and appends the packed blocks.
void AppendBlocks(std::string_view name, size_t calls,
                  const std::function<void(size_t call, std::string* line)>& append_line,
                  PageText* html);

// One side of a value: [kind, dtype, shape, max, min, mean, norm, NaN, +inf, -inf, zeros, value],
// without the empty texts at the end. The numbers are spelled as in the dump.
void AppendSide(const Leaf& leaf, std::string* json);
// A number with four digits, "inf", "-inf"; null for NaN.
void AppendShortNumber(double value, std::string* json);
// [1,2,3], at most 12 of them.
void AppendCalls(std::span<const int32_t> calls, std::string* json);

}  // namespace msprobe::report_page
