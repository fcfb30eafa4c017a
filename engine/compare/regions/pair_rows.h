// The rows and leaves of the pairs of a comparison, for rules that go through all of them.
//
//   const PairRows rows(comparison);
//   rows.EachRow(pair, [&](uint32_t row) { any |= rows.IsOpen(row); });
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

class PairRows {
 public:
  explicit PairRows(const Comparison& comparison) : c_(comparison) {}

  const Dump& DumpOf(bool target) const { return target ? c_.target : c_.golden; }
  // Whether the two sides of a row do not agree, or there is only one.
  bool IsOpen(uint32_t row) const {
    return c_.rows[row].target < 0 || c_.rows[row].golden < 0 ||
           c_.measures[row].verdict == RowVerdict::kDiffers;
  }
  template <typename Use>
  void EachRow(size_t p, Use use) const {
    const RecordPair& pair = c_.pairs[p];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) use(i);
  }
  // Calls use(leaf, is_target) for the leaves of a row.
  template <typename Use>
  void EachLeaf(uint32_t row, Use use) const {
    if (c_.rows[row].target >= 0) use(c_.target.leaves[c_.rows[row].target], true);
    if (c_.rows[row].golden >= 0) use(c_.golden.leaves[c_.rows[row].golden], false);
  }
  // The same with index into Dump::leaves, for rules that need no more than the content.
  template <typename Use>
  void EachLeafIndex(uint32_t row, Use use) const {
    if (c_.rows[row].target >= 0) use(c_.rows[row].target, true);
    if (c_.rows[row].golden >= 0) use(c_.rows[row].golden, false);
  }
  const Record& RecordOf(size_t p) const {
    const RecordPair& pair = c_.pairs[p];
    return pair.target >= 0 ? c_.target.records[pair.target] : c_.golden.records[pair.golden];
  }

 private:
  const Comparison& c_;
};

}  // namespace msprobe::compare
