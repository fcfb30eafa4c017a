// The comparison of many ranks or steps on one screen: which ranks differ, where the first wrong
// number begins, and which exchanges bring it to other ranks.
#pragma once

#include <span>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_terminal.h"

namespace msprobe::compare {

// `results` ordered by step and rank; `target`, `golden`: the two paths that were compared;
// `left_out`: sentences on what was not compared.
//
//   std::fputs(RanksReport(results, {"runs/new", "runs/good", {}}, look).c_str(), stdout);
struct RanksCompared {
  std::string target, golden;
  std::vector<Message> left_out;
};
std::string RanksReport(std::span<const RankResult> results, const RanksCompared& compared,
                        const TerminalOptions& options = {});

// "Distributed.all_reduce.0.forward brings it from rank 2 to ranks 0, 1 (train.py:41 in f: ...)".
Message DescribeHop(const RankHop& hop);
// A sentence on the ranks whose first wrong number came from outside the recording, and where it is
// seen; "" when there are none.
Message DescribeOutside(const StepOrigins& step, std::span<const RankResult> results);
// A sentence on an origin with `in_exchange`: an exchange brought a wrong number, and no rank is
// known to have given it.
Message DescribeExchange(const RankOrigin& origin);

}  // namespace msprobe::compare
