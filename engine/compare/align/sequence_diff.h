// Which elements of two sequences belong together: a difference of two long sequences that mostly
// agree.
//
//   // Ids are 0 to 99. a[m.first] == b[m.second] of each match m; both indices increase.
//   std::vector<IndexPair> matches = DiffSequences(a, b, 100);
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace msprobe::compare {

using IndexPair = std::pair<uint32_t, uint32_t>;

// A common subsequence of `a` and `b`, whose elements are small ids (0 to id_count - 1). First
// equal ends are matched; then elements that occur once on each side divide the rest (patience
// diff); what lies between them is solved by Myers' O(ND) algorithm in linear memory. When one
// stretch needs more than `max_cost` edits, the result is a common subsequence that may not be the
// longest one. Identical sequences cost one pass.
std::vector<IndexPair> DiffSequences(std::span<const uint32_t> a, std::span<const uint32_t> b,
                                     uint32_t id_count, int max_cost = 1024);

}  // namespace msprobe::compare
