// How every kernel divides a tensor: the chunk tree. The tree decides the order of additions, so it
// must not depend on the SIMD target, the number of threads or the strides.
//
// Elements in logical order are cut into chunks of kChunkElements. A chunk gives a node.
// Neighbouring nodes are combined pairwise, then the results pairwise, and so on; a node without a
// neighbour moves up unchanged.
//
//   Node node = FoldChunks<Node, NoScratch>(numel, pool,
//       [&](int64_t first, int64_t n, int64_t chunk, NoScratch&) { return NodeOf(first, n); });
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/threads.h"
#include "engine/kernels/float_environment.h"

namespace msprobe::kernels {

// A chunk and its working memory fill about an L1 cache.
inline constexpr int64_t kChunkElements = 4096;
// Number of chunks that a thread takes at a time; a power of two, so that they form a subtree.
inline constexpr int64_t kGroupChunks = 16;
inline constexpr int64_t kGroupElements = kChunkElements * kGroupChunks;

// Combines nodes pushed in order, pairwise: a binary counter whose digit k holds the node of 2^k
// leaves. Example: after the leaves a b c d e the counter is 101 in binary; digit 2 holds
// ((a b) (c d)) and digit 0 holds e. Finish combines the two.
// Node needs `static Node Combine(const Node& left, const Node& right)`.
template <typename Node, int kLevels>
class PairwiseFold {
 public:
  void Push(Node node) {
    int level = 0;
    for (uint64_t c = count_++; c & 1; c >>= 1) node = Node::Combine(levels_[level++], node);
    levels_[level] = node;
  }
  // To be called after at least one node was pushed.
  Node Finish() const {
    int level = 0;
    while (!(count_ >> level & 1)) ++level;
    Node node = levels_[level];
    for (++level; level < kLevels && count_ >> level; ++level) {
      if (count_ >> level & 1) node = Node::Combine(levels_[level], node);
    }
    return node;
  }

 private:
  std::array<Node, kLevels> levels_;
  uint64_t count_ = 0;
};

// Whether FoldChunks uses several threads for a tensor of this size.
inline bool InParallel(int64_t count, const ThreadPool* pool) {
  return count > kGroupElements && pool != nullptr && pool->threads() > 1;
}

// The node of a group. `chunk_node(first element, elements, chunk number)` gives a Node.
template <typename Node, typename ChunkNode>
Node FoldGroup(int64_t count, int64_t group, const ChunkNode& chunk_node) {
  PairwiseFold<Node, 7> fold;
  const int64_t last = std::min(count, (group + 1) * kGroupElements);
  for (int64_t first = group * kGroupElements; first < last; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, last - first);
    fold.Push(chunk_node(first, n, first / kChunkElements));
  }
  return fold.Finish();
}

// `group_node(group, scratch)` gives a Node and may run on several threads at once, each with a
// Scratch of its own. count > 0.
template <typename Node, typename Scratch, typename GroupNode>
Node FoldGroups(int64_t count, ThreadPool* pool, const GroupNode& group_node) {
  const int64_t groups = (count + kGroupElements - 1) / kGroupElements;
  PairwiseFold<Node, 48> fold;
  if (InParallel(count, pool)) {
    std::vector<Node> nodes(static_cast<size_t>(groups));
    pool->ParallelFor(nodes.size(), [&](size_t g) {
      const FloatEnvironment environment;
      Scratch scratch;
      nodes[g] = group_node(static_cast<int64_t>(g), scratch);
    });
    for (const Node& node : nodes) fold.Push(node);
  } else {
    const FloatEnvironment environment;
    Scratch scratch;
    for (int64_t g = 0; g < groups; ++g) fold.Push(group_node(g, scratch));
  }
  return fold.Finish();
}

// `chunk_node(first element, elements, chunk number, scratch)` gives a Node and may run on several
// threads at once, each with a Scratch of its own; a group's chunks come in order, on one thread.
// count > 0.
template <typename Node, typename Scratch, typename ChunkNode>
Node FoldChunks(int64_t count, ThreadPool* pool, const ChunkNode& chunk_node) {
  if (count <= kChunkElements) {
    Scratch scratch;
    return chunk_node(int64_t{0}, count, int64_t{0}, scratch);
  }
  return FoldGroups<Node, Scratch>(count, pool, [&](int64_t group, Scratch& scratch) {
    return FoldGroup<Node>(count, group, [&](int64_t first, int64_t n, int64_t chunk) {
      return chunk_node(first, n, chunk, scratch);
    });
  });
}

struct NoScratch {};

}  // namespace msprobe::kernels
