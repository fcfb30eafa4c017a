// Applies a new configuration when its file has changed, and rejects one that this run cannot use.
//
//   ConfigReload reload(&recording, [&] { Stop(); });
//   reload.Watch(std::move(watch), /*polls=*/true);
//   if (reload.Poll(has_model, rank) == ConfigReload::Answer::kTaken) ApplyConfig();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "capture/recording/recording.h"
#include "engine/dump/config/config_watch.h"

namespace msprobe::capture {

bool RecordsModules(const dump::Config& config);
// Whether steps of optimizers are recorded as calls.
bool RecordsOptimizers(const dump::Config& config);

// Checks what only the disk can tell: that "dump_path" can be written, and that "bench_path" holds
// a dump to compare with. `rank`: of this process, if it is known.
Status CheckPlaces(const dump::Config& config, std::optional<int> rank);

class ConfigReload {
 public:
  enum class Answer : uint8_t { kUnchanged, kRefused, kTaken };

  // `stop` ends collection; called before the session gets another configuration.
  ConfigReload(Recording* recording, std::function<void()> stop)
      : recording_(recording), stop_(std::move(stop)) {}

  // `polls`: the file is read again when it has changed.
  void Watch(std::unique_ptr<dump::ConfigWatch> watch, bool polls) {
    watch_ = std::move(watch);
    polls_ = polls;
  }
  // Reads the file if it is time and the file has changed. After kRefused and kTaken collection has
  // stopped.
  Answer Poll(bool has_model, std::optional<int> rank);
  // Gives the session its configuration with other keyword arguments of the debugger. Errors: those
  // of LoadConfig and of Poll's refusals; kInvalidArgument while a step is recorded.
  Status Override(const dump::ConfigOverrides& more, bool has_model, std::optional<int> rank);

 private:
  Status Check(const Result<dump::Config>& read, bool has_model, std::optional<int> rank);

  Recording* recording_;
  std::function<void()> stop_;
  std::unique_ptr<dump::ConfigWatch> watch_;  // null: of a front of an older tool
  bool polls_ = false;
  std::string refusal_;  // the last error that was logged
};

}  // namespace msprobe::capture
