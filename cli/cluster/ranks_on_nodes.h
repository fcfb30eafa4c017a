// Which ranks are still to be compared, and which nodes can do it: those that have the dumps of all
// steps of the rank, of both sides.
//
//   RanksOnNodes ranks(pairs, nodes);
//   const std::vector<size_t> block = ranks.Take(node);    // indices of ranks; none: nothing to do
//   ranks.Lose(node, block);                               // another node shall compare them
//   for (const size_t rank : ranks.TakeWithoutNode()) Print("rank {}", rank);
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/cluster/ray_nodes.h"
#include "cli/inputs/compare_inputs.h"

namespace msprobe::cli {

class RanksOnNodes {
 public:
  struct Rank {
    int number = -1;
    std::vector<DumpPair> pairs;  // of its steps
    std::set<size_t> nodes;
    uint64_t bytes = 0;              // of the files of its dumps
    std::vector<size_t> lost_nodes;  // nodes that were lost while they compared it
    bool alone = false;              // no other rank is in its block
  };
  // All ranks wait.
  RanksOnNodes(std::span<const DumpPair> pairs, std::span<const RayNodes::Node> nodes);
  const std::vector<Rank>& ranks() const { return ranks_; }  // by number

  // A block of the waiting ranks for a node that is free, in their order: large dumps one by one,
  // and several small ones, which one process compares on several threads.
  std::vector<size_t> Take(size_t node);
  // Ranks that the node had taken when it was lost. They wait for another node, but not for ever.
  void Lose(size_t node, std::span<const size_t> taken);
  // They wait again, each for a block of its own.
  void GiveBack(std::span<const size_t> taken);
  // Removes the ranks that no node can compare, and returns them.
  std::vector<size_t> TakeWithoutNode();

 private:
  std::vector<Rank> ranks_;
  std::set<size_t> waiting_;
  size_t nodes_left_;
};

}  // namespace msprobe::cli
