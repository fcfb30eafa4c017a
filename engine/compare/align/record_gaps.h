// Pairs two runs of calls by what they look like: strict keys over the whole length, looser keys in
// the gaps that are left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/compare/align/align.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

class GapFiller {
 public:
  // All references outlive the filler; `partners` has one element a target record.
  GapFiller(const Dump& target, const Dump& golden, const RecordKeys& target_keys,
            const RecordKeys& golden_keys, const KeyEvidence& evidence,
            std::vector<Partner>* partners)
      : target_(target),
        golden_(golden),
        target_keys_(target_keys),
        golden_keys_(golden_keys),
        evidence_(evidence),
        partners_(*partners) {}

  // Pairs members of `target` with members of `golden` (record indices, in execution order, none
  // paired yet).
  void Fill(std::vector<uint32_t> target, std::vector<uint32_t> golden);

 private:
  struct Gap {
    std::vector<uint32_t> target, golden;
  };
  std::vector<Gap> Diff(const Gap& gap, KeyLevel level);
  void Slide(std::span<const uint32_t> target, std::span<const uint32_t> golden);
  void PairMoved(std::span<const uint32_t> target, std::span<const uint32_t> golden);
  void PairRenamed(const Gap& gap);
  void SlideSide(std::span<const uint32_t> longer, std::span<const uint32_t> shorter, bool swapped,
                 std::vector<int>* match_long, std::vector<int>* match_short);
  std::vector<Gap> GapsBetween(std::span<const uint32_t> target,
                               std::span<const uint32_t> golden) const;
  int Agreement(uint32_t target, uint32_t golden) const;
  void Pair(uint32_t target, uint32_t golden, double confidence);

  const Dump &target_, &golden_;
  const RecordKeys &target_keys_, &golden_keys_;
  KeyEvidence evidence_;
  std::vector<Partner>& partners_;
};

// How alike two calls of different names are, 0 to 1: structure (leaf names and shapes), name,
// enclosing module, source line.
double Similarity(const Dump& target, const Record& t, const Dump& golden, const Record& g);

}  // namespace msprobe::compare
