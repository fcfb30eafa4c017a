// Pairs calls again where the recorded values fit better: a block that runs twice in one program,
// of which the run that the other program has, too, was edited. By keys alone the unedited one
// looks more like it.
//
// The target calls A b C D, where B was renamed to b, and A B C D behind it; the golden A B C D.
// The shortest edit pairs the second A B C D of the target with all of the golden. If the values of
// A, C and D agree in the first one, and not in the second, the first one is the partner.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace msprobe::compare {

struct SequencePairs {
  // Of each call what it looks like: calls of one id may be a pair.
  std::span<const uint32_t> target, golden;
  // The position of the partner of each call; -1: none. Partners are in order on both sides.
  std::vector<int>* match_target;
  std::vector<int>* match_golden;
};

// `agreement(target, golden)`: how well the values of two calls agree, 0 to 4. Of the calls around
// each gap, at most some hundreds, it takes the pairing in order with the largest sum of
// 1 + 2 * agreement; the one that is there stays unless another one is better.
void PairByValues(const SequencePairs& pairs, const std::function<int(int, int)>& agreement);

}  // namespace msprobe::compare
