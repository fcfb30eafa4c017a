// A comparison of many ranks, or steps, on one screen: who differs, where it begins, how it
// travels.
#pragma once

#include <span>
#include <string>

#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_terminal.h"

namespace msprobe::compare {

// `results` ordered by step and rank; `target`, `golden`: the two paths that were compared;
// `left_out`: sentences on what was not compared.
//
//   std::fputs(RanksReport(results, {"runs/new", "runs/good", {}}, look).c_str(), stdout);
struct RanksCompared {
  std::string target, golden;
  std::vector<std::string> left_out;
};
std::string RanksReport(std::span<const RankResult> results, const RanksCompared& compared,
                        const TerminalOptions& options = {});

// "rank 2 (train.py:41 in f: y = ...) -> ranks 0, 1": one way a wrong number went.
std::string DescribeHop(const RankHop& hop);
// Ranks whose wrong number came from outside what was recorded, and where it shows: a sentence; ""
// when there are none.
std::string DescribeOutside(const StepOrigins& step, std::span<const RankResult> results);
// Of an origin whose exchange got only right numbers, or numbers nobody knows: a sentence.
std::string DescribeExchange(const RankOrigin& origin);

}  // namespace msprobe::compare
