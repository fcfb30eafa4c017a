// What is written and printed of the first anomaly of a step.
//
//   FirstAnomalies found = FindFirstAnomalies(std::move(ranks));
//   WriteFileAtomically(path, AnomalyFile(found));       // anomaly_analyze_{nanoseconds}.json
//   Print("{}", AnomalyText(found, {.entries = 251}));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/anomaly/first_anomaly.h"
#include "engine/base/messages/message.h"

namespace msprobe::anomaly {

// What was read. Steps are read up to the first that has an anomaly.
struct AnomalySearch {
  std::string_view verb = "overflow_check";  // as it was typed
  size_t steps = 1, all_steps = 1;
  int64_t entries = 0;   // of these steps, of all ranks
  bool complete = true;  // false: a rank could not be read
};

// The file has the form of msprobe 8's and 26's, and more members:
//
//   {"rank_3": [{"op_name": "Functional.linear.7.forward", "data_info": {"input_args": [...], ...},
//                "construct_info": ["Module.layers.4.mlp.Mlp.forward.0"],
//                "stack_info": ["File model.py, line 88, in forward, ..."],
//                "source_line": "model.py:88 in forward: ...", "why": "..."}]}
//
// data_info is the entry as it stands in the dump, with NaN and Infinity as in every dump.json.
std::string AnomalyFile(const FirstAnomalies& found);

// Strict JSON: {"verdict": "found", "phase": "...", "first": [...], "others": [...], "travelled":
// [...], "steps": 3, "ranks": 2, "notes": [...], "file": "..."}; verdict "none" when nothing was
// found, "unknown" when a rank could not be read. `file`: what was written, or "".
std::string AnomalyJson(const FirstAnomalies& found, const AnomalySearch& search,
                        std::span<const Message> notes, const std::string& file);

// For a terminal: some lines when an anomaly was found, one line when there is none.
std::string AnomalyText(const FirstAnomalies& found, const AnomalySearch& search);

}  // namespace msprobe::anomaly
