#include "capture/recording/config_reload.h"

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/dump/session/dump_place.h"
#include "engine/dump/session/reference_dump.h"
#include "engine/dump/session/reference_search.h"

namespace msprobe::capture {

bool RecordsModules(const dump::Config& config) {
  return config.level == Level::kL0 || config.level == Level::kMix;
}

bool RecordsOptimizers(const dump::Config& config) {
  return config.optimizer && !config.pkl &&
         (config.level == Level::kL1 || config.level == Level::kMix) &&
         (config.task == Task::kStatistics || config.task == Task::kTensor);
}

Status CheckPlaces(const dump::Config& config, std::optional<int> rank) {
  MSPROBE_RETURN_IF_ERROR(dump::CheckDumpPlace(config, rank));
  if (!config.baseline.empty())
    MSPROBE_RETURN_IF_ERROR(
        dump::CheckReference("baseline", config.baseline, config.dump_path).status());
  return config.bench_path.empty()
             ? Status::Ok()
             : dump::ReferenceSearch::Check(config.bench_path, config.dump_path);
}

Status ConfigReload::Check(const Result<dump::Config>& read, bool has_model,
                           std::optional<int> rank) {
  if (!read.ok()) return read.status();
  Status refusal;
  if (read->task == Task::kGradProbe) {
    refusal = InvalidConfig(watch_->path())
                  .Expected("a task that records calls, as at the construction"_t)
                  .Found(std::string("\"grad_probe\""));
  } else if (RecordsModules(*read) && !has_model) {
    refusal = InvalidConfig(watch_->path())
                  .Expected("level \"L1\", or a model: start(model)"_t)
                  .Found("a level that records modules, and no model"_t);
  } else {
    refusal = CheckPlaces(*read, rank);
  }
  if (!refusal.ok()) watch_->RejectConfig();
  return refusal;
}

Status ConfigReload::Override(const dump::ConfigOverrides& more, bool has_model,
                              std::optional<int> rank) {
  if (recording_->session->collecting()) {
    return InvalidArgument(std::string("debugger.config"))
        .Expected("a new level, task or step between stop() and start()"_t)
        .Found("a step that is recorded"_t);
  }
  dump::ConfigWatch next = *watch_;
  Result<dump::Config> config = next.Override(more);
  MSPROBE_RETURN_IF_ERROR(Check(config, has_model, rank));
  watch_ = std::make_unique<dump::ConfigWatch>(std::move(next));
  recording_->session->Reconfigure(*std::move(config));
  return Status::Ok();
}

ConfigReload::Answer ConfigReload::Poll(bool has_model, std::optional<int> rank) {
  if (watch_ == nullptr || !polls_) return Answer::kUnchanged;
  dump::Session& session = *recording_->session;
  std::optional<Result<dump::Config>> read =
      watch_->Poll(dump::ConfigWatch::Clock::now(), session.enabled());
  if (!read) return Answer::kUnchanged;
  stop_();
  if (const Status refusal = Check(*read, has_model, rank); !refusal.ok()) {
    session.RejectConfig();
    if (refusal.message() != refusal_) {
      Log(LogLevel::kWarning,
          Message::Joined(
              {"collection is off until the file is corrected: {}"_t(refusal.AsMessage()),
               refusal.HintAsMessage()},
              "; "));
    }
    refusal_ = refusal.message();
    return Answer::kRefused;
  }
  refusal_.clear();
  dump::Config config = **std::move(read);
  if (config.warnings != session.config().warnings) {
    for (const Message& line : config.warnings) Log(LogLevel::kWarning, line);
  }
  session.Reconfigure(std::move(config));
  Log(LogLevel::kInfo,
      (session.enabled()
           ? "{} has changed and was read again: collection is on"_t
           : "{} has changed and was read again: collection is off"_t)(watch_->path()));
  return Answer::kTaken;
}

}  // namespace msprobe::capture
