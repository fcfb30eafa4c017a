// diff_analyze_{time}.json: the first divergence of each rank, in the shape the earlier tools gave
// it, with our reasons added.
//
//   {"rank_0": [{"op_name": "Functional.linear.4.forward",
//                "data_info": {"input": {"...input.0": {"NPU max": 1.0, "Bench max": 1.0, ...}},
//                "output": {...}}, "stack_info": ["File train.py, line 4, in f, ..."], "class":
//                "introduced", "confidence": 0.9, "source_line": "train.py:4 in f: ...", "why":
//                "..."}]}
#pragma once

#include <string>

#include "engine/compare/comparison.h"

namespace msprobe {

// Appends `"rank_0": [...]`; the list is empty when the rank has no divergence.
void AppendDiffAnalysis(std::string* out, const Comparison& comparison, int rank);

}  // namespace msprobe
