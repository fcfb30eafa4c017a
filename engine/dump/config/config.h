// config.json: what to record. The same file as msprobe 1.0 to 26 read; docs/reference/config.md
// has the table of keys.
//
//   MSPROBE_ASSIGN_OR_RETURN(Config config, LoadConfig("config.json", {.level = "mix"}));
//   for (const Message& line : config.warnings) Log(LogLevel::kWarning, line);
//   Filter filter(config);                                          // filter.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/free_benchmark_rules.h"
#include "engine/dump/config/gradient_rules.h"
#include "engine/dump/config/pkl_style.h"
#include "engine/dump/config/slice_rules.h"
#include "engine/dump/config/summary_mode.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Which API calls are recorded, by how much they can harm a result (api_rules.h).
enum class RiskLevel : uint8_t { kAll, kFocus, kCore };

// Which values of which entries are recorded. backward() includes the gradients of parameters.
struct DataMode {
  bool forward_input = true, forward_output = true, backward_input = true, backward_output = true;

  bool forward() const { return forward_input || forward_output; }
  bool backward() const { return backward_input || backward_output; }
};

// Of which steps the parameters and buffers of the models are recorded as they are when the step
// begins (weights.json).
enum class WeightSteps : uint8_t { kNone, kFirst, kEach };

// What happens at the first difference from the baseline, after it was logged.
enum class BaselineAction : uint8_t { kGoOn, kStop, kRaise };

struct Config {
  Task task = Task::kStatistics;          // any task but kOther
  Level level = Level::kL1;               // kL0, kL1, kMix, kDebug; kL2: nothing is recorded
  std::string dump_path = "./dump_path";  // as written; relative to the working directory
  std::vector<int64_t> rank, step;        // sorted, without repetition; empty: all
  bool extra_info = true;                 // false: no stack.json and construct.json

  std::vector<std::string>
      scope;                      // none, or two entry names: an inclusive range in execution order
  std::vector<std::string> list;  // substrings of entry names; one must occur
  std::vector<std::string>
      tensor_list;  // substrings of entries whose tensors are saved as well (task statistics), or
                    // whose NaN and infinities are counted and located (task nan_check)
  DataMode data_mode;
  SummaryMode summary;
  std::vector<SliceRule> slice;  // the part of each tensor that is recorded
  int64_t overflow_nums = 1;     // task overflow_check: collection ends after so many; -1: never
  std::string bench_path;        // task tensor: only calls that differ from this dump; "": all
  int64_t diff_nums = 1;         // with bench_path: collection ends after so many; -1: never
  std::string baseline;          // calls are compared with this dump while they are recorded
  BaselineAction baseline_action = BaselineAction::kGoOn;
  GradientRules gradients;            // task grad_probe, which records nothing else
  FreeBenchmarkRules free_benchmark;  // task free_benchmark, which records findings only
  std::string request_id;  // "": whole batches; else the request whose tokens are recorded

  RiskLevel risk_level = RiskLevel::kAll;  // ignored when scope or list is set
  bool async_dump = false;                 // a thread writes tensors, also with few cores
  bool link_equal_tensors = true;          // equal tensors of a step share one file, by hard links
  bool packed_tensors = false;      // "tensor_files": "packed"; one file for a step's tensors
  std::optional<bool> dump_enable;  // set: the file is read again when it changes
  std::optional<int64_t> seed;      // set, or the next one set: the front seeds once
  std::optional<bool> is_deterministic;
  bool enable_dataloader = false;  // the front starts and stops with each batch
  bool reuse = true;               // a tensor that has not changed is not read again
  bool sketch = true;              // recorded with the statistics (engine/kernels/sketch.h)
  bool optimizer = true;           // steps of optimizers are calls (tasks statistics, tensor)
  WeightSteps weights = WeightSteps::kEach;  // kEach: tasks statistics and tensor; else kFirst
  std::vector<std::string> custom_op_namespaces = {"_C_ascend"};  // of torch.ops

  std::optional<PklStyle> pkl;  // set by the front of an older tool: write its files, no dump.json

  std::vector<Message> warnings;  // lines for the log: keys that have no effect here, ...
};

// Keyword arguments of the debugger; they win over the file. Elements of step: "7" or "3-6".
struct ConfigOverrides {
  std::optional<std::string> task, dump_path, level;
  std::optional<std::vector<std::string>> step;
  std::optional<std::string> baseline, baseline_action;
};

// An empty path gives the defaults above. A key of an older generation whose value changes nothing
// becomes a warning; one that asks for something that this version cannot do is an error. Errors:
// kNotFound; kInvalidConfig with path and line, the key, what is allowed and the nearest spelling;
// kInvalidArgument for an override.
Result<Config> LoadConfig(const std::string& path, const ConfigOverrides& overrides = {});

// The same for text that is already in memory; `path` is for messages.
Result<Config> ParseConfig(std::string_view text, std::string_view path,
                           const ConfigOverrides& overrides = {});

}  // namespace msprobe::dump
