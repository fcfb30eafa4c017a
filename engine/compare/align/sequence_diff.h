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

// A common subsequence of `a` and `b`, elements being small dense ids (0 to id_count - 1). Equal
// ends are matched first, then elements that occur once on each side anchor the rest (patience),
// then Myers' O(ND) algorithm in linear memory; beyond `max_cost` edits in one stretch the result
// is still a common subsequence, no longer the longest. Identical sequences cost one pass.
std::vector<IndexPair> DiffSequences(std::span<const uint32_t> a, std::span<const uint32_t> b,
                                     uint32_t id_count, int max_cost = 1024);

}  // namespace msprobe::compare
