// What a page holds of one comparison or of one dump, packed: it stays when the comparison is
// freed.
//
//   PagePart part = PartOf(comparison, {.index = 0, .step = 3, .rank = 0});
//   parts.push_back(std::move(part));          // for ComparisonPage (report_page.h)
#pragma once

#include <cstdint>
#include <string>

#include "engine/compare/model/comparison.h"
#include "engine/model/table.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

struct PartOptions {
  size_t index = 0;                 // of the part in its page
  int32_t step = -1, rank = -1;     // -1: without a number
  uint64_t value_bytes = 64 << 20;  // of the values' text before it is packed, about
  uint64_t proof_bytes = 16 << 20;  // of the proofs' text, the same
  // Bytes of tensors that are read once more, to count how the elements of values differ.
  uint64_t tensor_bytes = uint64_t{2} << 30;
};

struct PagePart {
  PageText html;  // elements with the data
};

// Values of a call are its arguments and results: their numbers on both sides, and the calls that
// made or took them. If they need more than options.value_bytes, those of the first divergence and
// the calls around it come first, then those of calls that differ; values of equal calls are left
// out first, and the page says so. So it is with proofs, of comparisons that kept them. Calls whose
// elements are counted are chosen in the same order.
PagePart PartOf(const compare::Comparison& comparison, const PartOptions& options);
PagePart PartOf(const Dump& dump, const PartOptions& options);

}  // namespace msprobe::report_page
