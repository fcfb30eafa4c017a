// In which order the slices of one tensor stand in another, and what that order is called.
//
//   const std::optional<SliceOrder> order = OrderOf(target_prints, golden_prints);
//   if (order) Print(DescribeOrder(order->pattern, {"row"_t, "rows"_t}, true).English());
//   // "q, k, v of each head together in place of all q, all k, all v"
//
// Slices are known by fingerprints. Time: near linear in their number.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::checkpoint {

// What an order is called. Sizes count slices.
struct OrderPattern {
  enum class Kind : uint8_t {
    kInterleaved,  // group 0 of each part, group 1 of each part, ..., in place of part after part
    kSeparated,    // the reverse: part after part in place of the groups
    kExchanged,    // a grid of parts x parts blocks, transposed: both of the above
    kReversed,
    kRolled,    // slice i of the target is slice i + shift of the golden; 2 parts: the halves
    kBlocks,    // blocks of `block` slices, in no regular order
    kIrregular  // no two slices stay neighbours, or no blocks of one size
  };
  Kind kind = Kind::kIrregular;
  int64_t parts = 0, groups = 0;
  int64_t block = 0;       // of a part in one group: the size of a head
  int64_t first_part = 1;  // blocks of the first part in a group: queries that share a key
  int64_t within = 1;  // how often the pattern is repeated: heads in which halves are interleaved
  int64_t shift = 0;
};

struct SliceOrder {
  std::vector<int64_t> from;  // slice i of the target is slice from[i] of the golden
  int64_t moved = 0;          // slices with from[i] != i
  OrderPattern pattern;
};

// nullopt: the two do not have the same slices, or have them in the same order. Where fingerprints
// are there several times, the order that has a name is chosen.
std::optional<SliceOrder> OrderOf(std::span<const uint64_t> target,
                                  std::span<const uint64_t> golden);

// What one slice and several slices are called: "row", "rows".
struct SliceUnit {
  Message one, many;
};

// "reversed". `is_attention`: three parts are queries, keys and values.
Message DescribeOrder(const OrderPattern& pattern, const SliceUnit& unit, bool is_attention);

}  // namespace msprobe::checkpoint
