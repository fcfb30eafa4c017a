// Reads the configuration again when its file has changed (used when the key dump_enable is set),
// or with other keyword arguments.
//
//   ConfigWatch watch(path, overrides);     // before LoadConfig: a change in between is seen
//   if (std::optional<Result<Config>> read = watch.Poll(ConfigWatch::Clock::now(), enabled)) ...
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/dump/config/config.h"

namespace msprobe::dump {

class ConfigWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kWhileEnabled{500}, kWhileDisabled{3000};

  ConfigWatch(std::string path, ConfigOverrides overrides, Clock::time_point now = Clock::now());

  // The new configuration, or the error when the file cannot be used. nullopt: the file has not
  // changed, or was looked at less than kWhileEnabled (`enabled`) or kWhileDisabled ago. A file
  // that could not be read or parsed is read again each time.
  std::optional<Result<Config>> Poll(Clock::time_point now, bool enabled);
  const std::string& path() const { return path_; }
  // The configuration with other keyword arguments, which Poll uses from now on as well. The file
  // is read. Errors: those of LoadConfig; then nothing has changed.
  Result<Config> Override(const ConfigOverrides& more);
  // The caller cannot use the last configuration: the next Poll reads the file again, even if it
  // has not changed.
  void RejectConfig() { refused_ = true; }

 private:
  struct Stamp {
    int64_t seconds = 0, nanoseconds = 0, size = -1;  // size -1: no file
    bool operator==(const Stamp&) const = default;
  };
  Stamp Look() const;

  const std::string path_;
  ConfigOverrides overrides_;
  Stamp seen_;
  Clock::time_point looked_;
  bool refused_ = false;
};

}  // namespace msprobe::dump
