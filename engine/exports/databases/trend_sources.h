// What .trend.db files are made of: the dumps of a run, and the csv files of its monitor.
//
//   TrendOptions options{.replacements = {{".TE", "."}}};
//   MSPROBE_ASSIGN_OR_RETURN(auto made, TrendOfDumps("runs/a", "out/dump_data.trend.db", options));
//   if (made.rows == 0) Print("no dump below runs/a");          // and no file was written
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::exports {

struct TrendOptions {
  // In every name the first text is replaced by the second one, in this order.
  std::vector<std::pair<std::string, std::string>> replacements;
  // Each forward and backward pass within a step counts as a step: the second pass of step 3, of
  // two passes, is step 7. false: steps are those of the run.
  bool micro_steps = true;
  size_t threads = 1;  // how many files are read at a time
};

struct TrendMade {
  int64_t rows = 0;            // 0: nothing to read was found, and there is no file
  std::vector<Message> notes;  // what was left out, and why
};

// Reads {"text": "replacement", ...}. Errors: kNotFound; kInvalidConfig with the line.
Result<std::vector<std::pair<std::string, std::string>>> ReadReplacements(const std::string& path);

// Below `folder`: steps with ranks with dump.json, of level L0 or mix. Statistics (norm, max, min,
// mean) of tensors of float16, bfloat16 and float32; metrics forward, backward, recompute (a
// forward call inside a backward call) and parameters_grad.
Result<TrendMade> TrendOfDumps(const std::string& folder, const std::string& path,
                               const TrendOptions& options);

// Below `folder`: a folder for each rank, "Nov24_09-30-00-rank3-1a2b3c4d", with files such as
// actv_0-9.csv; each kind of file is a metric.
Result<TrendMade> TrendOfMonitor(const std::string& folder, const std::string& path,
                                 const TrendOptions& options);

}  // namespace msprobe::exports
