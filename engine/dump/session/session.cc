#include "engine/dump/session/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/dump/session/dump_place.h"

namespace msprobe::dump {

Session::Session(Config config, std::string framework)
    : config_(std::move(config)),
      filter_(config_),
      enabled_(config_.dump_enable.value_or(true)),
      slicer_(config_.slice),
      files_(std::move(framework)) {
  configured_path_ = config_.dump_path;
  calls_.Configure(config_);
  disabled_ = IsDisabledByEnvironment();
  if (disabled_) Log(LogLevel::kInfo, "MSPROBE_DISABLE is 1: nothing is recorded"_t);
}

void Session::SayUnmet() {
  if (disabled_ || failed_ || concluded_ || abandoned_ || !enabled() ||
      config_.level == Level::kL2 || config_.task == Task::kGradProbe ||
      std::exchange(said_unmet_, true))
    return;
  if (!extent_.collected && !extent_.recorded && !failed_start_.empty()) {
    Log(LogLevel::kWarning, "nothing was recorded: start() raised {}"_t(failed_start_));
    return;
  }
  if (extent_.last_step < 0 && !extent_.recorded)
    Log(LogLevel::kWarning, "nothing was recorded: start() was never called"_t);
  const std::vector<Message> lines = UnmetRequests(config_, filter_, extent_);
  for (const Message& line : lines) Log(LogLevel::kWarning, line);
  if (lines.empty() && extent_.collected && !extent_.recorded &&
      config_.task == Task::kOverflowCheck)
    Log(LogLevel::kInfo, "no call made NaN or infinities: nothing was recorded"_t);
}

bool Session::StepIsWanted() {
  extent_.last_step = std::max(extent_.last_step, step_);
  current_step_ = step_;
  started_ = true;
  if (disabled_ || failed_ || concluded_ || !enabled()) return false;
  if (collecting_) return true;
  if (next_ && !std::exchange(said_later_, true)) {
    Log(LogLevel::kInfo,
        "step {} has begun: the new configuration applies from the "
        "next step on, after step()"_t(step_));
  }
  if (config_.level == Level::kL2) return false;       // said when the configuration was read
  if (config_.task == Task::kGradProbe) return false;  // gradients are read at optimizer steps
  if (!filter_.WantsStep(step_)) {
    if (filter_.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
      Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection"_t);
    }
    return false;
  }
  return true;
}

Result<bool> Session::Start(std::optional<int> rank) {
  if (!StepIsWanted()) return false;
  if (collecting_) return true;
  extent_.rank = rank;
  if (!filter_.WantsRank(rank.value_or(-1))) return false;
  if (request_is_absent_) {
    Log(LogLevel::kWarning, "step {} is not collected: request {} has no tokens in it"_t(
                                step_, Excerpt(config_.request_id)));
    return false;
  }
  if (rank) SetLogRank(*rank);
  Status status = Status::Ok();
  if (files_.is_open()) {
    status = files_.Reopen();
  } else if (config_.pkl) {
    status = Open();
  }
  if (!status.ok()) {
    Fail(status);
    return status;
  }
  ++epoch_;
  collecting_ = extent_.collected = true;
  first_start_ = false;
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
          "scheduled_tokens has no effect: the configuration has no request_id"_t);
    return;
  }
  const std::optional<SliceRule> rule = SliceOfRequest(*tokens_, config_.request_id);
  request_is_absent_ = !rule;
  slicer_.SetRequest(rule);
}

Status Session::Open() {
  MSPROBE_RETURN_IF_ERROR(files_.Open(config_, step_, extent_.rank, provenance_));
  if (config_.pkl) calls_.BeginPklFile();
  for (const auto& [name, text] : std::exchange(waiting_files_, {}))
    MSPROBE_RETURN_IF_ERROR(files_.WriteBeside(name, text));
  return Status::Ok();
}

bool Session::OpenFiles() {
  if (files_.is_open()) return true;
  const Status status = Open();
  if (!status.ok()) Fail(status);
  return status.ok();
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

std::string Session::step_folder() const {
  return extent_.collected ? JoinPath(config_.dump_path, fmt::format("step{}", current_step_)) : "";
}

bool Session::is_over() const {
  return disabled_ || failed_ || concluded_ || filter_.IsPastLastStep(step_);
}

void Session::SetOver(bool over) {
  if (over) (void)Stop();  // logs what fails
  concluded_ = over;
}

void Session::SetConfiguredPath(std::string path) {
  configured_path_ = path;
  next_path_ = std::move(path);
}

bool Session::begins_stage() const {
  return !collecting_ && !config_.pkl &&
         (stage_ended_ || (next_path_ && *next_path_ != config_.dump_path));
}

void Session::BeginStage() {
  BeginDump();
  if (next_path_) config_.dump_path = *next_path_;
  if (!std::exchange(stage_ended_, false)) return;
  calls_.NewStep();
  filter_.NewStep();
}

void Session::Reconfigure(Config config) {
  if (abandoned_) return;
  refused_ = false;
  configured_path_ = config.dump_path;
  if (next_path_) config.dump_path = *next_path_;
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
  GoToStep(step_ + 1);
  after_empty_step_ = empty;
}

void Session::TakeBackEmptyStep() {
  if (after_empty_step_ && !started_) GoToStep(step_ - 1);
}

void Session::BeginDump() {
  (void)Stop();  // logs what fails
  if (!failed_) {
    if (const Status status = files_.Finish(); !status.ok()) Fail(status);
  }
  files_.Forget();
  waiting_files_.clear();
  ++epoch_;
  ++dump_;
}

void Session::BeginAtStep(int64_t step) {
  current_step_ = first_step_ = step;
  GoToStep(step);
}

void Session::RepeatStep() { GoToStep(step_); }

void Session::GoToStep(int64_t step) {
  BeginDump();
  files_.NewStep();
  step_ = step;
  started_ = after_empty_step_ = stage_ended_ = false;
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
  DeferredEntry& waiting = deferred_.Add();
  waiting.has_entry = item.entry != nullptr;
  waiting.name = item.name;
  waiting.parent = item.parent;
  waiting.construct = item.construct;
  if (item.entry != nullptr) waiting.entry = *item.entry;
}

void Session::ResolveDeferred(std::span<const DeferredNumbers> arrived) {
  for (const DeferredNumbers& numbers : arrived) deferred_.Resolve(numbers);
  DrainDeferred(/*give_up=*/false);
  if (watcher_ != nullptr) watcher_->AfterRecord();
}

void Session::DrainDeferred(bool give_up) {
  deferred_.Drain(give_up, [&](const DeferredEntry& e) {
    Write({e.has_entry ? &e.entry : nullptr, e.name, e.parent, e.construct});
  });
}

void Session::Write(const Item& item) {
  if (!collecting_ || !OpenFiles()) return;
  const bool watched = watcher_ != nullptr && item.entry != nullptr;
  if (watched) watcher_->BeforeWrite(*item.entry);
  Status status = item.entry == nullptr ? Status::Ok() : files_.Write(*item.entry);
  if (status.ok() && item.construct) status = files_.AppendConstruct(item.name, item.parent);
  if (!status.ok()) return Fail(status);
  extent_.recorded = true;
  if (!config_.step.empty()) extent_.steps.insert(step_);
  if (watched) watcher_->AfterWrite();
}

void Session::WriteBeside(const std::string& file_name, std::string_view text) {
  if (!collecting_) return;
  if (!files_.is_open()) {
    waiting_files_[file_name] = text;
    return;
  }
  if (const Status status = files_.WriteBeside(file_name, text); !status.ok()) Fail(status);
}

bool Session::Store(const std::string& file_name, const TensorView& view) {
  if (!collecting_ || !OpenFiles()) return false;
  const Status status = files_.Store(file_name, view);
  if (!status.ok()) Fail(status);
  return status.ok();
}

void Session::Conclude(Message why) {
  if (!Stop().ok()) return;  // logged by Stop
  concluded_ = true;
  const bool ends = config_.pkl && config_.pkl->raises;
  Log(LogLevel::kInfo,
      Message::Joined({std::move(why), ends ? "the program ends, as requested"_t
                                            : "the run goes on without collection"_t},
                      "; "));
}

void Session::Fail(const Status& status) noexcept {
  collecting_ = false;
  ++epoch_;
  if (std::exchange(failed_, true)) return;
  try {
    Message kept;
    if (files_.is_open())
      kept = "the records that were made until now are in {} (msprobe recover closes its files)"_t(
          files_.folder());
    Log(LogLevel::kError,
        Message::Joined({"collection is off, the run goes on: {}"_t(status.AsMessage()),
                         status.HintAsMessage(), std::move(kept)},
                        "; "));
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
