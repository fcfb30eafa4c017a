// What task free_benchmark says: a row in free_benchmark.csv for each inconsistent result, and at
// the end of the run what was judged, what was not and why, and the worst call.
//
//   StabilityReport report;
//   MSPROBE_RETURN_IF_ERROR(report.Open(folder));
//   report.Judged();
//   MSPROBE_RETURN_IF_ERROR(report.Add(row, where));
//   for (const Message& line : report.Lines(rules, period)) Log(LogLevel::kInfo, line);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/dump/config/free_benchmark_rules.h"
#include "engine/stability/judge.h"

namespace msprobe::stability {

inline constexpr char kReportFile[] = "free_benchmark.csv";

struct StabilityRow {
  int rank = 0;
  std::string_view perturbation;  // "add_noise"
  bool backward = false;
  int64_t step = 0;
  std::string_view call;  // "Functional.softmax.12.forward"
  Verdict verdict;
  std::string_view dtype;      // "torch.float16", of the first result
  std::vector<int64_t> shape;  // of the first result
  int64_t output_index = -1;   // -1: the only output
};

class StabilityReport {
 public:
  // Begins free_benchmark.csv in this folder, with its header; has no effect when it is open there.
  Status Open(const std::string& folder);
  // `where`: "train.py:12 y = f(x)", or "" when it is not known.
  Status Add(const StabilityRow& row, const std::string& where);

  void Judged() { ++judged_; }
  void Inconsistent() { ++inconsistent_; }
  void Fixed() { ++fixed_; }
  void Skipped(const Message& why) {
    ++skipped_.try_emplace(why.English(), why, 0).first->second.second;
  }
  void NotSampled() { ++not_sampled_; }
  int64_t judged() const { return judged_; }

  // Lines for the log, once at the end of the run; empty when no call was seen. `period`: one call
  // in so many was chosen at last.
  std::vector<Message> Lines(const dump::FreeBenchmarkRules& rules, int64_t period) const;

 private:
  AppendFile file_;
  int64_t judged_ = 0, inconsistent_ = 0, fixed_ = 0, not_sampled_ = 0;
  std::map<std::string, std::pair<Message, int64_t>> skipped_;  // by reason
  Message worst_;                                               // call, its max_rel and its place
  double worst_size_ = 0;
};

}  // namespace msprobe::stability
