// The file diff_analyze_{nanoseconds}.json says where wrong numbers begin. It has the form of
// msprobe 26's file and more members. Ranks that only received a wrong number are not in it.
//
//   {"rank_0": [{"op_name": "Functional.linear.4.forward",
//                "data_info": {"input": {"...input.0": {"NPU max": 1.0, "Bench max": 1.0, ...}},
//                "output": {...}}, "stack_info": ["File train.py, line 4, in f, ..."], "class":
//                "introduced", "confidence": 0.9, "source_line": "train.py:4 in f: ...", "why":
//                "...", "reached": [1, 2], "travelled": [{"op_name": "Distributed.all_reduce.0...",
//                "source_line": "...", "from": [0], "to": [1, 2]}]}]}
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::cli {

// The JSON members of one rank, without those about other ranks; "" when the rank has no
// divergence.
std::string DivergenceNode(const compare::Comparison& comparison);

// The file of one step. `nodes` has the DivergenceNode of each of step.results, in that order.
std::string DiffAnalysis(const compare::StepOrigins& step,
                         std::span<const compare::RankResult> results,
                         const std::vector<std::string_view>& nodes);

}  // namespace msprobe::cli
