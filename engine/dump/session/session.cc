#include "engine/dump/session/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "engine/base/log.h"
#include "engine/dump/session/dump_place.h"

namespace msprobe::dump {

Session::Session(Config config, std::string framework)
    : config_(std::move(config)),
      filter_(config_),
      enabled_(config_.dump_enable.value_or(true)),
      slicer_(config_.slice),
      files_(std::move(framework)) {
  calls_.Configure(config_);
  disabled_ = IsDisabledByEnvironment();
  if (disabled_) Log(LogLevel::kInfo, "MSPROBE_DISABLE is 1: nothing is recorded");
}

void Session::SayUnreachedSteps() {
  if (disabled_ || failed_ || concluded_ || abandoned_ || !enabled() || last_started_ < 0 ||
      config_.level == Level::kL2 || config_.task == Task::kGradProbe ||
      std::exchange(said_unreached_, true))
    return;
  const std::vector<int64_t> steps = filter_.StepsAfter(last_started_);
  if (steps.empty()) return;
  constexpr size_t kMost = 5;
  const std::vector<int64_t> shown(
      steps.begin(), steps.begin() + static_cast<int64_t>(std::min(kMost, steps.size())));
  Log(LogLevel::kWarning,
      fmt::format("step{} {}{} {} asked for, the run ended at step {}{}",
                  steps.size() == 1 ? "" : "s", fmt::join(shown, ", "),
                  steps.size() > kMost ? fmt::format(" and {} more", steps.size() - kMost) : "",
                  steps.size() == 1 ? "was" : "were", last_started_,
                  recorded_ ? "" : ": nothing was recorded"));
}

bool Session::StepIsWanted() {
  last_started_ = std::max(last_started_, step_);
  started_ = true;
  if (disabled_ || failed_ || concluded_ || !enabled()) return false;
  if (collecting_) return true;
  if (next_ && !std::exchange(said_later_, true)) {
    Log(LogLevel::kInfo, fmt::format("step {} has begun: the new configuration applies from the "
                                     "next step on, after step()",
                                     step_));
  }
  if (config_.level == Level::kL2) return false;       // said when the configuration was read
  if (config_.task == Task::kGradProbe) return false;  // gradients are read at optimizer steps
  if (!filter_.WantsStep(step_)) {
    if (filter_.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
      Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection");
    }
    return false;
  }
  return true;
}

Result<bool> Session::Start(std::optional<int> rank) {
  if (!StepIsWanted()) return false;
  if (collecting_) return true;
  if (!filter_.WantsRank(rank.value_or(-1))) {
    said_unreached_ = true;  // the steps were asked of other ranks
    return false;
  }
  if (request_is_absent_) {
    Log(LogLevel::kWarning, fmt::format("step {} is not collected: request {} has no tokens in it",
                                        step_, Excerpt(config_.request_id)));
    return false;
  }
  if (const Status status = files_.is_open() ? files_.Reopen() : Open(rank); !status.ok()) {
    Fail(status);
    return status;
  }
  ++epoch_;
  collecting_ = recorded_ = true;
  return true;
}

void Session::ScheduleTokens(std::optional<TokenCounts> counts) {
  tokens_ = std::move(counts);
  ApplyTokens();
}

void Session::ApplyTokens() {
  request_is_absent_ = false;
  slicer_.SetRequest(std::nullopt);
  if (!tokens_) return;
  if (config_.request_id.empty()) {
    if (!std::exchange(said_no_request_, true))
      Log(LogLevel::kWarning,
          "scheduled_tokens has no effect: the configuration has no request_id");
    return;
  }
  std::optional<SliceRule> rule = SliceOfRequest(*tokens_, config_.request_id);
  request_is_absent_ = !rule;
  slicer_.SetRequest(std::move(rule));
}

Status Session::Open(std::optional<int> rank) {
  MSPROBE_RETURN_IF_ERROR(files_.Open(config_, step_, rank, provenance_));
  if (config_.pkl) calls_.BeginPklFile();
  if (rank) SetLogRank(*rank);
  return Status::Ok();
}

void Session::ApplyConfig(Config config) {
  if (config.dump_path != config_.dump_path) files_.Forget();
  if (!files_.is_open()) files_.ReleaseTensors();
  config_ = std::move(config);
  calls_.Configure(config_);
  filter_ = Filter(config_);
  slicer_ = Slicer(config_.slice);
  ApplyTokens();
  failed_ = concluded_ = said_end_ = said_later_ = false;
  ++configured_;
}

void Session::ReleasePkl() {
  (void)Stop();  // logs what fails
  if (!failed_) {
    if (const Status status = files_.Finish(); !status.ok()) Fail(status);
  }
  files_.Forget();
}

void Session::ReconfigureNow(Config config, bool goes_on) {
  if (abandoned_) return;
  ReleasePkl();
  next_.reset();
  const bool failed = failed_, concluded = concluded_;
  ApplyConfig(std::move(config));
  failed_ = goes_on && failed;
  concluded_ = goes_on && concluded;
}

void Session::Reconfigure(Config config) {
  if (abandoned_) return;
  refused_ = false;
  enabled_ = config.dump_enable.value_or(enabled_);
  // The files of this step that are on the disk are kept. With another header they could not be
  // continued, so the new configuration then holds from the next step on.
  const bool same_header = config.task == config_.task && config.level == config_.level &&
                           config.extra_info == config_.extra_info &&
                           StoresTensors(config) == StoresTensors(config_) && !failed_;
  next_.reset();
  if (!files_.is_open() || same_header || config.dump_path != config_.dump_path) {
    ApplyConfig(std::move(config));
  } else {
    next_ = std::move(config);
  }
}

void Session::RejectConfig() { refused_ = true; }

Status Session::Stop() {
  DrainDeferred(/*give_up=*/true);
  if (!std::exchange(collecting_, false)) return Status::Ok();
  ++epoch_;
  Status closed = files_.Close();
  if (!closed.ok()) Fail(closed);
  return closed;
}

void Session::Step() {
  const bool empty = !started_;
  BeginAtStep(step_ + 1);
  after_empty_step_ = empty;
}

void Session::TakeBackEmptyStep() {
  if (after_empty_step_ && !started_) BeginAtStep(step_ - 1);
}

void Session::BeginAtStep(int64_t step) {
  (void)Stop();  // logs what fails
  if (!failed_) {
    if (const Status status = files_.Finish(); !status.ok()) Fail(status);
  }
  files_.Forget();
  step_ = step;
  started_ = after_empty_step_ = false;
  ++epoch_;
  calls_.NewStep();
  filter_.NewStep();
  // When the next step is recorded, it uses the same buffers: fresh memory costs more than the
  // copy.
  if (!filter_.WantsStep(step_)) files_.ReleaseTensors();
  if (next_) ApplyConfig(*std::exchange(next_, std::nullopt));
}

void Session::Record(const Item& item) {
  if (!collecting_) return;
  if (!deferred_.waiting() && (item.entry == nullptr || !IsDeferred(*item.entry))) {
    Write(item);
    if (watcher_ != nullptr) watcher_->AfterRecord();
    return;
  }
  DeferredEntry waiting{.has_entry = item.entry != nullptr,
                        .name = std::string(item.name),
                        .parent = std::string(item.parent),
                        .construct = item.construct};
  if (item.entry != nullptr) waiting.entry = *item.entry;
  deferred_.Add(std::move(waiting));
}

void Session::ResolveDeferredStats(std::span<const std::pair<int64_t, kernels::Stats>> stats) {
  for (const auto& [ticket, known] : stats) deferred_.Resolve(ticket, known);
  DrainDeferred(/*give_up=*/false);
  if (watcher_ != nullptr) watcher_->AfterRecord();
}

void Session::DrainDeferred(bool give_up) {
  deferred_.Drain(give_up, [&](const DeferredEntry& e) {
    Write({e.has_entry ? &e.entry : nullptr, e.name, e.parent, e.construct});
  });
}

void Session::Write(const Item& item) {
  if (!collecting_) return;
  const bool watched = watcher_ != nullptr && item.entry != nullptr;
  if (watched) watcher_->BeforeWrite(*item.entry);
  Status status = item.entry == nullptr ? Status::Ok() : files_.Write(*item.entry);
  if (status.ok() && item.construct) status = files_.AppendConstruct(item.name, item.parent);
  if (!status.ok()) return Fail(status);
  if (watched) watcher_->AfterWrite();
}

void Session::WriteBeside(const std::string& file_name, std::string_view text) {
  if (!collecting_) return;
  if (const Status status = files_.WriteBeside(file_name, text); !status.ok()) Fail(status);
}

bool Session::Store(const std::string& file_name, const TensorView& view) {
  if (!collecting_) return false;
  const Status status = files_.Store(file_name, view);
  if (!status.ok()) Fail(status);
  return status.ok();
}

void Session::Conclude(std::string_view why) {
  if (!Stop().ok()) return;  // logged by Stop
  concluded_ = true;
  const bool ends = config_.pkl && config_.pkl->raises;
  Log(LogLevel::kInfo,
      fmt::format("{}; {}", why,
                  ends ? "the program ends, as requested" : "the run goes on without collection"));
}

void Session::Fail(const Status& status) noexcept {
  collecting_ = false;
  ++epoch_;
  if (std::exchange(failed_, true)) return;
  try {
    std::string line = "collection is off, the run goes on: " + status.message();
    if (!status.hint().empty()) line += "; " + status.hint();
    if (files_.is_open())
      line += fmt::format(
          "; the records that were made until now are in {} (msprobe recover closes its files)",
          files_.folder());
    Log(LogLevel::kError, line);
    // The entries on the disk name tensor files that still wait in the queue.
    files_.DrainTensors();
  } catch (const std::exception&) {
    static constexpr char kLine[] = "msprobe: collection is off, the run goes on: out of memory\n";
    (void)!::write(STDERR_FILENO, kLine, sizeof(kLine) - 1);
  }
}

void Session::Abandon() {
  collecting_ = false;
  failed_ = abandoned_ = true;
  ++epoch_;
  files_.Abandon();
}

}  // namespace msprobe::dump
