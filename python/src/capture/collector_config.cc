// What a configuration makes of a Collector, at first and when its file has changed.
#include <fmt/format.h>

#include "capture/collector.h"
#include "engine/base/log.h"
#include "engine/dump/session/dump_place.h"

namespace msprobe::capture {
namespace {

bool RecordsModules(const dump::Config& config) {
  return config.level == Level::kL0 || config.level == Level::kMix;
}

}  // namespace

Status Collector::CheckPlaces(const dump::Config& config, std::optional<int> rank) {
  MSPROBE_RETURN_IF_ERROR(dump::CheckDumpPlace(config, rank));
  return config.bench_path.empty()
             ? Status::Ok()
             : dump::ReferenceSearch::Check(config.bench_path, config.dump_path);
}

void Collector::Configure(dump::Config config, std::unique_ptr<dump::ConfigWatch> watch) {
  for (const std::string& line : config.warnings) Log(LogLevel::kWarning, line);
  run_.session = std::make_unique<dump::Session>(std::move(config));
  watch_ = run_.session->config().dump_enable ? std::move(watch) : nullptr;
  if (!run_.session->enabled())
    Log(LogLevel::kInfo, "collection is off until the configuration says \"dump_enable\": true");
  run_.options.store = [this](const std::string& file, const TensorView& view) {
    return run_.session->Store(file, view);
  };
  Adopt();
}

void Collector::Restyle(dump::Config config, bool goes_on) {
  if (run_.session == nullptr || !run_.session->config().pkl) {
    Configure(std::move(config));
    return;
  }
  (void)Stop();  // a failure is logged where it happens
  arrived_.clear();
  backward_stacks_.clear();
  run_.session->Restyle(std::move(config), goes_on);
  Adopt(goes_on);
}

void Collector::ReleasePkl() {
  if (run_.session == nullptr || !run_.session->config().pkl) return;
  (void)Stop();  // a failure is logged where it happens
  run_.session->ReleasePkl();
}

void Collector::Adopt(bool goes_on) {
  const dump::Config& config = run_.session->config();
  configured_ = run_.session->configured();
  const bool records_calls = !run_.session->disabled() && config.task != Task::kGradProbe;
  run_.modules_wanted = records_calls && RecordsModules(config);
  run_.apis_wanted = records_calls && (config.level == Level::kL1 || config.level == Level::kMix);
  run_.options.summary = config.summary;
  if (!goes_on) found_.Forget();
  search_.reset();
  if (!config.bench_path.empty())
    search_ = std::make_unique<dump::ReferenceSearch>(config.bench_path);
  run_.options.numbers = config.task != Task::kNanCheck;
  run_.options.for_pkl = config.pkl.has_value();
  // Other tasks need a tensor's numbers before the call goes on.
  run_.options.device = config.task == Task::kStatistics ? &run_.device : nullptr;
  apis_.ApplyRules();
}

bool Collector::Refresh(bool has_model, std::optional<int> rank) {
  if (watch_ == nullptr) return false;
  std::optional<Result<dump::Config>> read =
      watch_->Poll(dump::ConfigWatch::Clock::now(), run_.session->enabled());
  if (!read) return false;
  (void)Stop();  // a failure is logged where it happens
  Status refusal = read->ok() ? Status::Ok() : read->status();
  if (read->ok() && RecordsModules(**read) && !has_model) {
    watch_->Refuse();
    refusal = InvalidConfig(watch_->path())
                  .Expected("level \"L1\", or a model: start(model)")
                  .Found("a level that records modules, and no model");
  }
  if (refusal.ok() && !(refusal = CheckPlaces(**read, rank)).ok()) watch_->Refuse();
  if (read->ok() && (*read)->task == Task::kGradProbe) {
    watch_->Refuse();
    refusal = InvalidConfig(watch_->path())
                  .Expected("a task that records calls, as at the construction")
                  .Found("\"grad_probe\"");
  }
  if (!refusal.ok()) {
    run_.session->Refuse();
    if (refusal.message() != refusal_) {
      Log(LogLevel::kWarning,
          fmt::format("collection is off until the file is right: {}{}{}", refusal.message(),
                      refusal.hint().empty() ? "" : "; ", refusal.hint()));
    }
    refusal_ = refusal.message();
    return true;
  }
  refusal_.clear();
  dump::Config config = **std::move(read);
  if (config.warnings != run_.session->config().warnings) {
    for (const std::string& line : config.warnings) Log(LogLevel::kWarning, line);
  }
  run_.session->Reconfigure(std::move(config));
  Log(LogLevel::kInfo, fmt::format("{} has changed and was read again: collection is {}",
                                   watch_->path(), run_.session->enabled() ? "on" : "off"));
  Adopt();
  return true;
}

}  // namespace msprobe::capture
