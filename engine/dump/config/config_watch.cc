#include "engine/dump/config/config_watch.h"

#include <sys/stat.h>

namespace msprobe::dump {

ConfigWatch::ConfigWatch(std::string path, ConfigOverrides overrides, Clock::time_point now)
    : path_(std::move(path)), overrides_(std::move(overrides)), seen_(Look()), looked_(now) {}

ConfigWatch::Stamp ConfigWatch::Look() const {
  struct stat file;
  if (::stat(path_.c_str(), &file) != 0) return {};
  return {file.st_mtim.tv_sec, file.st_mtim.tv_nsec, file.st_size};
}

Result<Config> ConfigWatch::Override(const ConfigOverrides& more) {
  ConfigOverrides overrides = overrides_;
  if (more.task) overrides.task = more.task;
  if (more.dump_path) overrides.dump_path = more.dump_path;
  if (more.level) overrides.level = more.level;
  if (more.step) overrides.step = more.step;
  if (more.baseline) overrides.baseline = more.baseline;
  if (more.baseline_action) overrides.baseline_action = more.baseline_action;
  Result<Config> config = LoadConfig(path_, overrides);
  if (config.ok()) overrides_ = std::move(overrides);
  return config;
}

std::optional<Result<Config>> ConfigWatch::Poll(Clock::time_point now, bool enabled) {
  if (now - looked_ < (enabled ? kWhileEnabled : kWhileDisabled)) return std::nullopt;
  looked_ = now;
  const Stamp stamp = Look();
  if (stamp == seen_ && !refused_) return std::nullopt;
  seen_ = stamp;
  Result<Config> config = LoadConfig(path_, overrides_);
  refused_ = !config.ok();
  return config;
}

}  // namespace msprobe::dump
