// How one value lies over the ranks: whole on each of them, in shards, as addends of a sum. What
// its parts look like tells: their shapes, which of them are equal, and which exchanges they are
// given to; never whether the golden's numbers fit.
//
//   const LayoutFacts facts(runs);
//   const ValueLayout layout = facts.Of(parts, {.whole = golden_leaf.shape});
//   Print(Describe(layout, parts, runs));    // "joined: Shard(2) of ranks 0, 1"
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/layouts/joined_calls.h"

namespace msprobe::compare::layouts {

// What one rank holds of a value.
struct ValuePart {
  int32_t run = 0;   // index into the runs
  int32_t leaf = 0;  // index into Dump::leaves
};

struct ValueLayout {
  enum class Kind : uint8_t {
    kWhole,      // the same elements on every rank
    kShards,     // the parts side by side are the whole
    kSum,        // the sum of the parts is the whole, or is a shard of it
    kMean,       // the mean of the parts is: a loss over a part of the batch
    kDivergent,  // each rank has other elements of the whole shape, and nothing joins them
    kUnknown,    // its shapes do not tell
  };
  Kind kind = Kind::kUnknown;
  int32_t dimension = -1;  // of shards; -1: several, or not known
  // The shards in their order, or the one whole; of each the parts that are added up: indices into
  // the parts of the value.
  std::vector<std::vector<int32_t>> places;
  bool ordered = true;  // false: nothing tells in which order the shards stand
  std::vector<int64_t>
      padded;  // the extents of the whole, where they are more than the golden's; else none
};

// What the ranks of one side hold of a value.
struct HeldParts {
  Shape shape;           // of the first part
  bool uniform = true;   // the parts have one shape
  bool bounded = true;   // their elements can be counted
  int64_t contents = 0;  // how many different parts there are
  int64_t units = 0;  // how many different sums exchanges make of them; 0: not all are given to one
  Shape declared;     // of the whole, as a DTensor says; "": none does
  // The extents of different parts of other shapes side by side, where they differ in one
  // dimension; else none.
  std::vector<int64_t> side_by_side;
  // Of how many parts the whole consists.
  int64_t places() const { return contents <= 1 ? 1 : units > 0 ? units : contents; }
};

// How far the statistics of a copy are from the golden's, relative to its largest element and its
// norm. 0: the same bits.
double DistanceOfCopies(const Leaf& copy, const Leaf& golden);

class LayoutFacts {
 public:
  explicit LayoutFacts(std::span<const RankRun> runs);

  struct Question {
    Shape whole;  // the golden's
    const Leaf* golden =
        nullptr;            // of copies that differ, the one that is farthest from it is compared
    bool averaged = false;  // a loss of which each rank has that of its part of the batch
    bool added = false;     // a number or a gradient of which each rank has an addend
  };
  ValueLayout Of(std::span<const ValuePart> parts, const Question& question) const;
  HeldParts Summarize(std::span<const ValuePart> parts) const;

  const Leaf& LeafOf(const ValuePart& part) const {
    return runs_[part.run].dump->leaves[part.leaf];
  }

 private:
  // Whom a content is added up with.
  using Reductions = std::unordered_map<uint64_t, std::string_view>;
  std::vector<std::vector<int32_t>> Units(std::span<const ValuePart> parts) const;
  const LeafShard* ShardOf(const ValuePart& part) const;
  bool OfDTensor(std::span<const ValuePart> parts, Shape whole, ValueLayout* layout) const;
  bool IsPadded(std::span<const ValuePart> parts, Shape whole, ValueLayout* layout) const;
  void Arrange(std::span<const ValuePart> parts, Shape whole, ValueLayout* layout) const;

  std::span<const RankRun> runs_;
  std::vector<Reductions> reductions_;  // of each run
  mutable ShapePool shapes_;            // of DTensors
};

// "joined: Shard(2) of ranks 0, 1", "joined: sum over ranks 0, 1", "whole on ranks 0, 1".
// `adds_up`: the sum of the parts, which nothing adds up, would be the golden's. The layout has a
// place.
Message Describe(const ValueLayout& layout, std::span<const ValuePart> parts,
                 std::span<const RankRun> runs, bool adds_up = false);

}  // namespace msprobe::compare::layouts
