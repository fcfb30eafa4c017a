#include "cli/cluster/ranks_on_nodes.h"

#include <algorithm>
#include <map>

namespace msprobe::cli {
namespace {

constexpr size_t kMostRanks = 16;  // of a block
constexpr uint64_t kBytesOfBlock = uint64_t{64} << 20;
constexpr size_t kBlocksOfNode = 2;  // at least, so that nodes end at about the same time
constexpr size_t kMostLost = 3;      // nodes, of one rank: perhaps its dumps take all their memory

}  // namespace

RanksOnNodes::RanksOnNodes(std::span<const DumpPair> pairs, std::span<const RayNodes::Node> nodes)
    : nodes_left_(static_cast<size_t>(
          std::ranges::count_if(nodes, &std::string::empty, &RayNodes::Node::wrong))) {
  std::map<int, Rank> by_number;
  for (const DumpPair& pair : pairs) by_number[pair.rank].pairs.push_back(pair);
  for (auto& [number, rank] : by_number) {
    rank.number = number;
    ranks_.push_back(std::move(rank));
    waiting_.insert(ranks_.size() - 1);
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    std::map<std::string, uint64_t, std::less<>> sizes[2];  // by path: target, golden
    const FoundDumps* const sides[] = {&nodes[n].target, &nodes[n].golden};
    for (size_t side = 0; side < 2; ++side) {
      for (size_t i = 0; i < sides[side]->bytes.size(); ++i)
        sizes[side].emplace(sides[side]->dumps.dumps[i].path, sides[side]->bytes[i]);
    }
    for (Rank& rank : ranks_) {
      uint64_t bytes = 0;
      const bool has_all = std::ranges::all_of(rank.pairs, [&](const DumpPair& pair) {
        const auto a = sizes[0].find(pair.target), b = sizes[1].find(pair.golden);
        if (a == sizes[0].end() || b == sizes[1].end()) return false;
        bytes += a->second + b->second;
        return true;
      });
      if (!has_all) continue;
      rank.nodes.insert(n);
      rank.bytes = bytes;
    }
  }
}

std::vector<size_t> RanksOnNodes::Take(size_t node) {
  std::vector<size_t> block;
  for (const size_t rank : waiting_) {
    if (ranks_[rank].nodes.contains(node)) block.push_back(rank);
  }
  const size_t share = block.size() / (kBlocksOfNode * std::max<size_t>(nodes_left_, 1));
  block.resize(std::min({block.size(), kMostRanks, std::max<size_t>(share, 1)}));
  uint64_t bytes = 0;
  size_t fitting = 0;
  for (; fitting < block.size(); ++fitting) {
    bytes += ranks_[block[fitting]].bytes;
    const bool alone = ranks_[block[0]].alone || ranks_[block[fitting]].alone;
    if (fitting > 0 && (alone || bytes > kBytesOfBlock)) break;
  }
  block.resize(fitting);
  for (const size_t rank : block) waiting_.erase(rank);
  return block;
}

void RanksOnNodes::Lose(size_t node, std::span<const size_t> taken) {
  nodes_left_ -= nodes_left_ > 0;
  for (Rank& rank : ranks_) rank.nodes.erase(node);
  for (const size_t i : taken) {
    ranks_[i].lost_nodes.push_back(node);
    if (ranks_[i].lost_nodes.size() >= kMostLost) ranks_[i].nodes.clear();
    waiting_.insert(i);
  }
}

void RanksOnNodes::GiveBack(std::span<const size_t> taken) {
  for (const size_t rank : taken) {
    ranks_[rank].alone = true;
    waiting_.insert(rank);
  }
}

std::vector<size_t> RanksOnNodes::TakeWithoutNode() {
  std::vector<size_t> without;
  for (const size_t rank : waiting_) {
    if (ranks_[rank].nodes.empty()) without.push_back(rank);
  }
  for (const size_t rank : without) waiting_.erase(rank);
  return without;
}

}  // namespace msprobe::cli
