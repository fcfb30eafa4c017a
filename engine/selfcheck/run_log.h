// The log of one training run: for each step a fingerprint of each loss, gradient, weight and
// random generator. An append-only text file, with one write for each step.
//
//   MSPROBE_ASSIGN_OR_RETURN(RunLogWriter writer, RunLogWriter::Create("off.log"));
//   writer.Value(ValueKind::kLoss, "backward 0", 0x1234);
//   MSPROBE_RETURN_IF_ERROR(writer.EndStep(nanoseconds));
//   MSPROBE_ASSIGN_OR_RETURN(RunLog log, ReadRunLog("off.log"));
//   Print(log.steps[0].values[0].name);                       // "backward 0"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/status.h"

namespace msprobe::selfcheck {

// In the order in which a training step computes them.
enum class ValueKind : uint8_t { kWeight, kLoss, kGradient, kRandom };
std::string_view ValueKindName(ValueKind kind);  // "weight", "loss", "gradient", "random numbers"

struct RunLog {
  struct Value {
    ValueKind kind;
    std::string name;
    uint64_t fingerprint;
  };
  struct Step {
    std::vector<Value> values;
    int64_t nanoseconds = 0;  // since the step before; the time of the log itself is not counted
    bool is_end = false;      // the values at the end of the program, after the last step
  };
  std::vector<Step> steps;
  std::vector<std::string> notes;  // lines of Note()
  bool HasNote(std::string_view text) const;
  size_t StepCount() const;  // without the one that is_end
};

// Not for two threads at once. A forked child's calls do nothing.
class RunLogWriter {
 public:
  static Result<RunLogWriter> Create(const std::string& path);
  void Value(ValueKind kind, std::string_view name, uint64_t fingerprint);
  Status EndStep(int64_t nanoseconds);
  Status End();  // the values since the last step become those of the end of the program
  Status Note(std::string_view text);

 private:
  Status Flush(std::string_view line);
  AppendFile file_;
  std::string text_;
  int process_ = 0;
};

// Errors: kNotFound; kInvalidDump with the file and the line's offset.
Result<RunLog> ReadRunLog(const std::string& path);

}  // namespace msprobe::selfcheck
