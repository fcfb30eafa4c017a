// Pairs the calls of two runs by what they look like: first with strict keys over all calls, then
// with looser keys in the gaps that are left. A gap is a stretch of calls without a partner, on
// both sides, between two pairs. record_gaps.cc has a worked example.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/base/threads.h"
#include "engine/compare/align/align.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

class GapFiller {
 public:
  // The references must outlive the filler. `partners` has one element for each target record.
  GapFiller(const Dump& target, const Dump& golden, const RecordKeys& target_keys,
            const RecordKeys& golden_keys, const KeyEvidence& evidence, ThreadPool& pool,
            std::vector<Partner>* partners)
      : target_(target),
        golden_(golden),
        target_keys_(target_keys),
        golden_keys_(golden_keys),
        evidence_(evidence),
        pool_(pool),
        partners_(*partners) {}

  // Pairs members of `target` with members of `golden` (record indices, in execution order, none
  // paired yet).
  void Fill(std::vector<uint32_t> target, std::vector<uint32_t> golden);

 private:
  struct Gap {
    std::vector<uint32_t> target, golden;
  };
  // A small number for the key of each call of a gap: equal keys, equal numbers.
  struct Ids {
    std::vector<uint32_t> target, golden;
    uint32_t count = 0;  // numbers are below it
  };
  Ids IdsOf(const Gap& gap, KeyLevel level) const;
  std::vector<uint64_t> KeysOf(const RecordKeys& keys, std::span<const uint32_t> records,
                               KeyLevel level) const;
  // Pairs calls of the gap that have the same key, in order, and returns the gaps that are left.
  std::vector<Gap> Diff(const Gap& gap, const Ids& ids, KeyLevel level);
  // Moves calls without a partner along repetitions, to where the values around them agree best.
  void SlideGaps(const Gap& all, const Ids& ids);
  void SlideGapsOf(std::span<const uint32_t> longer, std::span<const uint32_t> shorter,
                   const std::function<int(int, int)>& agreement, std::vector<int>* match_long,
                   std::vector<int>* match_short);
  // Pairs calls that ran in another order.
  void PairMoved(std::span<const uint32_t> target, std::span<const uint32_t> golden);
  // Pairs calls of different names by similarity.
  void PairRenamed(const Gap& gap);
  // The calls without a partner between pairs that are in order.
  std::vector<Gap> GapsBetween(std::span<const uint32_t> target,
                               std::span<const uint32_t> golden) const;
  // How well the values of two calls agree, 0 to 7: the first tensor that goes in, the first that
  // comes out, and the other arguments.
  int Agreement(uint32_t target, uint32_t golden) const;
  void Pair(uint32_t target, uint32_t golden, double confidence);

  const Dump &target_, &golden_;
  const RecordKeys &target_keys_, &golden_keys_;
  KeyEvidence evidence_;
  ThreadPool& pool_;
  std::vector<Partner>& partners_;
};

// How similar two calls of different names are, 0 to 1: half by the shapes of their tensors, 0.35
// by their names, 0.15 by the module around them. 0 for different directions.
double Similarity(const Dump& target, const Record& t, const Dump& golden, const Record& g);

}  // namespace msprobe::compare
